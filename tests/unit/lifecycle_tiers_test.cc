// What the LifecycleController does below the slab, by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "kv/lifecycle_controller.h"

namespace hisparse::kv {
namespace {

using base::SequenceId;
using testing::ElementsAre;
using Tokens = std::vector<base::TokenId>;

constexpr std::int32_t kPageTokens = 4;
const SequenceId kA(1);
const SequenceId kB(2);

Tokens counting(base::TokenId first, int count) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

// Four resident slots, two in host memory, two on disk.
class WithTiers : public testing::Test {
 protected:
  explicit WithTiers(ControllerConfig config = {.page_tokens = kPageTokens,
                                                .resident_slots = 4,
                                                .host_slots = 2,
                                                .disk_slots = 2})
      : controller(config) {}

  void TearDown() override { EXPECT_EQ(controller.check_invariants(), std::nullopt); }

  // One plan that wants pages for `tokens` tokens of a sequence; what it started.
  Grant grow(SequenceId sequence, std::int64_t tokens) {
    PlanBuilder builder = controller.plan();
    const Grant grant = builder.extend(sequence, tokens);
    take(controller.commit(std::move(builder).finish()));
    return grant;
  }
  void take(const KvCommit& commit) {
    for (const auto* ops : {&commit.transfers.restores, &commit.transfers.demotions}) {
      ops_.insert(ops_.end(), ops->begin(), ops->end());
    }
  }
  void finish_transfers(const absl::Status& status = absl::OkStatus()) {
    for (const TransferOp& op : std::exchange(ops_, {})) controller.apply({op.id, status});
  }
  // A sequence whose pages are written, spilling as it goes; room for `reserved` tokens in all.
  void run(SequenceId sequence, const Tokens& tokens, std::int64_t reserved = 0) {
    PlanBuilder builder = controller.plan();
    const auto count = static_cast<std::int64_t>(tokens.size());
    ASSERT_TRUE(builder.admit(sequence, root, {}, std::max(count, reserved)));
    take(controller.commit(std::move(builder).finish()));
    for (std::size_t at = 0; at < tokens.size(); at += kPageTokens) {
      const auto end = std::min(at + kPageTokens, tokens.size());
      for (int tries = 0; grow(sequence, static_cast<std::int64_t>(end)) != Grant::kNow; ++tries) {
        ASSERT_LT(tries, 10);
        finish_transfers();
      }
      take(controller.written(sequence, std::span(tokens).subspan(at, end - at)));
    }
    finish_transfers();
  }
  std::vector<Tier> tiers(SequenceId sequence) const {
    std::vector<Tier> tiers;
    for (const Location& location : controller.locations(sequence)) tiers.push_back(location.tier);
    return tiers;
  }

  LifecycleController controller;
  const BlockKey root = root_key({"tenant", "model", "f32"});
  std::vector<TransferOp> ops_;
};

TEST_F(WithTiers, NothingMovesWhilePagesFit) {
  run(kA, counting(0, 16));
  EXPECT_EQ(controller.stats().moved, MoveCounts{});
  EXPECT_THAT(tiers(kA), testing::Each(Tier::kResident));
}

TEST_F(WithTiers, ALongSequenceGoesToHostMemoryFirstAndThenToDisk) {
  run(kA, counting(0, 32));
  const MoveCounts moved = controller.stats().moved;
  EXPECT_EQ(moved[index_of(Tier::kResident)][index_of(Tier::kHost)], 2);
  EXPECT_EQ(moved[index_of(Tier::kResident)][index_of(Tier::kDisk)], 2);
  EXPECT_EQ(controller.stats().tier(Tier::kResident).free, 0);
  EXPECT_EQ(tiers(kA)[0], Tier::kResident) << "the first page is protected";
  EXPECT_EQ(tiers(kA)[7], Tier::kResident) << "and so is the last one";
}

TEST_F(WithTiers, ASequenceIsPutOffWhilePagesAreCopiedDown) {
  run(kA, counting(0, 16), 20);
  EXPECT_EQ(grow(kA, 17), Grant::kLater);
  ASSERT_EQ(ops_.size(), 1U);
  EXPECT_EQ(ops_[0].reason, MoveReason::kSpill);
  EXPECT_EQ(grow(kA, 17), Grant::kLater) << "the copy is not there yet";
  EXPECT_EQ(ops_.size(), 1U) << "and it is not made twice";
  finish_transfers();
  EXPECT_EQ(grow(kA, 17), Grant::kNow);
}

TEST_F(WithTiers, WhatIsCachedIsCopiedDownBeforeWhatIsInUse) {
  run(kA, counting(0, 8));
  run(kB, counting(100, 8), 16);
  controller.release(kA);
  EXPECT_EQ(grow(kB, 16), Grant::kLater);
  finish_transfers();
  EXPECT_EQ(grow(kB, 16), Grant::kNow);
  EXPECT_THAT(tiers(kB), testing::Each(Tier::kResident));
  EXPECT_EQ(controller.match(root, counting(0, 9)).tokens, 8) << "and it can still be matched";
}

TEST_F(WithTiers, WhereAllTiersAreFullOnlyAReleaseHelps) {
  run(kA, counting(0, 32));
  PlanBuilder builder = controller.plan();
  EXPECT_EQ(builder.available_pages(), 0);
  EXPECT_EQ(builder.extend(kA, 33), Grant::kNoRoom);
  EXPECT_FALSE(builder.admit(kB, root, {}, 1));
}

TEST_F(WithTiers, ATransferHoldsItsSlotsWhenItsSequenceIsCancelled) {
  run(kA, counting(0, 16), 20);
  grow(kA, 17);
  ASSERT_EQ(ops_.size(), 1U);
  const Location from = ops_[0].from;
  controller.release(kA);
  EXPECT_EQ(controller.stats().tier(from.tier).draining, 1);
  finish_transfers();
  EXPECT_EQ(controller.stats().tier(from.tier).draining, 0);
  EXPECT_EQ(controller.stats().in_flight, 0);
}

TEST_F(WithTiers, AFailedCopyIsMadeAgainAndAFailingTierIsClosed) {
  run(kA, counting(0, 16), 20);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(grow(kA, 17), Grant::kLater);
    ASSERT_EQ(ops_.size(), 1U);
    EXPECT_EQ(ops_[0].to.tier, Tier::kHost);
    finish_transfers(absl::UnavailableError("x"));
  }
  EXPECT_EQ(grow(kA, 17), Grant::kLater);
  ASSERT_EQ(ops_.size(), 1U);
  EXPECT_EQ(ops_[0].to.tier, Tier::kDisk) << "the host tier is closed";
  finish_transfers();
  EXPECT_EQ(grow(kA, 17), Grant::kNow);
  EXPECT_EQ(controller.stats().failed_transfers, 3);
}

TEST_F(WithTiers, ALostPageTakesThoseBehindItAndNothingElse) {
  run(kA, counting(0, 32));
  controller.release(kA);
  const PrefixMatch all = controller.match(root, counting(0, 33));
  ASSERT_EQ(all.tokens, 32);
  PlanBuilder builder = controller.plan();
  ASSERT_TRUE(builder.admit(kB, root, all, 32));
  controller.commit(std::move(builder).finish());
  const std::vector<Location> where = controller.locations(kB);
  const auto bad = std::ranges::find(where, Tier::kDisk, &Location::tier);
  ASSERT_NE(bad, where.end());
  EXPECT_THAT(controller.readers(*bad), ElementsAre(kB));
  controller.release(kB);
  controller.lose(*bad);
  EXPECT_EQ(controller.match(root, counting(0, 33)).tokens, kPageTokens * (bad - where.begin()));
  EXPECT_EQ(controller.stats().lost_pages, 1);
}

class OnDiskWithoutCaching : public WithTiers {
 protected:
  OnDiskWithoutCaching()
      : WithTiers({.page_tokens = kPageTokens,
                   .resident_slots = 4,
                   .disk_slots = 4,
                   .prefix_caching = PrefixCaching::kOff}) {}
};

TEST_F(OnDiskWithoutCaching, PagesInUseComeBackWhenThereIsRoom) {
  run(kA, counting(0, 16));
  run(kB, counting(100, 16));
  const std::vector<Tier> before = tiers(kA);
  ASSERT_THAT(before, testing::Contains(Tier::kDisk));
  controller.release(kB);
  EXPECT_EQ(grow(kA, 16), Grant::kNow);
  ASSERT_EQ(static_cast<std::ptrdiff_t>(ops_.size()), std::ranges::count(before, Tier::kDisk));
  EXPECT_EQ(tiers(kA), before) << "they are read there until then";
  finish_transfers();
  EXPECT_THAT(tiers(kA), testing::Each(Tier::kResident));
}

TEST_F(OnDiskWithoutCaching, WhatIsFreedIsToldInEveryTier) {
  run(kA, counting(0, 24));
  const std::vector<Location> held = controller.locations(kA);
  ASSERT_THAT(tiers(kA), testing::Contains(Tier::kDisk));
  EXPECT_THAT(controller.release(kA).freed, testing::IsSupersetOf(held));
}

TEST_F(OnDiskWithoutCaching, ACopyThatCannotBeReadIsLost) {
  run(kA, counting(0, 16));
  run(kB, counting(100, 16));
  controller.release(kB);
  grow(kA, 16);
  ASSERT_FALSE(ops_.empty());
  const TransferOp op = ops_.front();
  const KvCommit commit = controller.apply({op.id, absl::DataLossError("x")});
  ASSERT_EQ(commit.lost, op.from);
  EXPECT_THAT(controller.readers(op.from), ElementsAre(kA));
  controller.release(kA);
  controller.lose(op.from);
  ops_.erase(ops_.begin());
  finish_transfers();
  EXPECT_EQ(controller.stats().referenced, 0);
}

class WithEagerMirror : public WithTiers {
 protected:
  WithEagerMirror()
      : WithTiers({.page_tokens = kPageTokens,
                   .resident_slots = 4,
                   .host_slots = 4,
                   .mirroring = Mirroring::kEager}) {}
};

TEST_F(WithEagerMirror, FullPagesAreCopiedEarlyAndTheirSlotsTakenAtOnce) {
  run(kA, counting(0, 16), 20);
  grow(kA, 16);
  finish_transfers();
  EXPECT_EQ(controller.stats().moved[index_of(Tier::kResident)][index_of(Tier::kHost)], 4);
  EXPECT_THAT(tiers(kA), testing::Each(Tier::kResident));
  EXPECT_EQ(grow(kA, 17), Grant::kNow);
}

}  // namespace
}  // namespace hisparse::kv
