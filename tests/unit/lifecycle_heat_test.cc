// Which pages go and come back when some get more attention than others.
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
constexpr std::int32_t kReplanTokens = 4;
const SequenceId kA(1);
const SequenceId kB(2);

Tokens counting(base::TokenId first, int count) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

ControllerConfig with_disk(std::int32_t resident) {
  return {.page_tokens = kPageTokens,
          .resident_slots = resident,
          .disk_slots = 16,
          .heat_window = 64,
          .replan_tokens = kReplanTokens};
}

class WithHeat : public testing::Test {
 protected:
  explicit WithHeat(const ControllerConfig& config = with_disk(8)) : controller(config) {}

  void TearDown() override { EXPECT_EQ(controller.check_invariants(), std::nullopt); }

  void take(const KvCommit& commit) {
    for (const auto* ops : {&commit.transfers.restores, &commit.transfers.demotions}) {
      ops_.insert(ops_.end(), ops->begin(), ops->end());
    }
  }
  Grant grow(SequenceId sequence, std::int64_t tokens) {
    PlanBuilder builder = controller.plan();
    const Grant grant = builder.extend(sequence, tokens);
    take(controller.commit(std::move(builder).finish()));
    return grant;
  }
  // A plan that wants nothing.
  void idle() { take(controller.commit(controller.plan().finish())); }
  void finish_transfers() {
    for (const TransferOp& op : std::exchange(ops_, {})) {
      controller.apply({op.id, absl::OkStatus()});
    }
  }
  void admit(SequenceId sequence, std::int64_t reserved) {
    PlanBuilder builder = controller.plan();
    ASSERT_TRUE(builder.admit(sequence, root, {}, reserved));
    take(controller.commit(std::move(builder).finish()));
  }
  // Whole pages more, spilling as it goes.
  void write(SequenceId sequence, int pages) {
    for (int page = 0; page < pages; ++page) {
      const std::int64_t end = controller.written_tokens(sequence) + kPageTokens;
      for (int tries = 0; grow(sequence, end) != Grant::kNow; ++tries) {
        ASSERT_LT(tries, 10);
        finish_transfers();
      }
      take(controller.written(
          sequence, counting(1000 * static_cast<int>(sequence.value()) + static_cast<int>(end),
                             kPageTokens)));
    }
  }
  void observe(SequenceId sequence, const std::vector<float>& masses) {
    std::vector<PageMass> seen;
    for (std::size_t page = 0; page < masses.size(); ++page) {
      seen.push_back({.page = static_cast<std::int32_t>(page), .mass = masses[page]});
    }
    controller.observe(sequence, seen);
  }
  std::vector<Tier> tiers(SequenceId sequence) const {
    std::vector<Tier> tiers;
    for (const Location& location : controller.locations(sequence)) tiers.push_back(location.tier);
    return tiers;
  }
  // Pages of the sequence that the transfers under way copy down, or up.
  std::vector<std::int32_t> moving(SequenceId sequence, Tier to) const {
    std::vector<std::int32_t> pages;
    const std::vector<Location> where = controller.locations(sequence);
    for (const TransferOp& op : ops_) {
      if (op.to.tier != to) continue;
      for (std::size_t page = 0; page < where.size(); ++page) {
        if (where[page] == op.from) pages.push_back(static_cast<std::int32_t>(page));
      }
    }
    std::ranges::sort(pages);
    return pages;
  }

  LifecycleController controller;
  const BlockKey root = root_key({"tenant", "model", "f32"});
  std::vector<TransferOp> ops_;
};

TEST_F(WithHeat, TheColdestPageInUseGoesFirst) {
  admit(kA, 64);
  write(kA, 7);
  observe(kA, {0.0f, 0.3f, 0.2f, 0.01f, 0.4f, 0.3f, 0.0f});
  write(kA, 1);
  EXPECT_EQ(grow(kA, 36), Grant::kLater);
  EXPECT_THAT(moving(kA, Tier::kDisk), ElementsAre(3));
}

TEST_F(WithHeat, WithoutObservationsTheFrontOfThePromptGoesFirst) {
  admit(kA, 64);
  write(kA, 8);
  EXPECT_EQ(grow(kA, 36), Grant::kLater);
  EXPECT_THAT(moving(kA, Tier::kDisk), ElementsAre(1)) << "the first page is protected";
}

TEST_F(WithHeat, HeatWithinAFactorOfTwoLeavesTheChoiceToAge) {
  admit(kA, 64);
  write(kA, 7);
  observe(kA, {0.0f, 0.26f, 0.25f, 0.3f, 0.4f, 0.0f, 0.0f});
  write(kA, 1);
  EXPECT_EQ(grow(kA, 36), Grant::kLater);
  EXPECT_THAT(moving(kA, Tier::kDisk), ElementsAre(5)) << "the only one that got none";
  finish_transfers();
  ASSERT_EQ(grow(kA, 36), Grant::kNow);
  EXPECT_EQ(grow(kA, 40), Grant::kLater);
  EXPECT_THAT(moving(kA, Tier::kDisk), ElementsAre(1));
}

TEST_F(WithHeat, ACachedPageGoesBeforeAColdOneInUseHoweverHotItWas) {
  admit(kA, 16);
  write(kA, 3);
  admit(kB, 64);
  write(kB, 5);
  observe(kA, {0.5f, 0.5f, 0.5f});
  write(kB, 0);
  controller.release(kA);
  EXPECT_EQ(grow(kB, 24), Grant::kLater);
  ASSERT_EQ(ops_.size(), 1U);
  EXPECT_THAT(moving(kB, Tier::kDisk), testing::IsEmpty());
}

TEST_F(WithHeat, ProtectedPagesStayHoweverColdTheyAre) {
  admit(kA, 64);
  write(kA, 7);
  observe(kA, {0.0f, 0.2f, 0.2f, 0.2f, 0.2f, 0.2f, 0.0f});
  write(kA, 7);
  finish_transfers();
  idle();
  const std::vector<Tier> now = tiers(kA);
  EXPECT_EQ(now[0], Tier::kResident);
  EXPECT_EQ(now[12], Tier::kResident);
  EXPECT_EQ(now[13], Tier::kResident);
}

// A has ended its prompt and its first pages have gone to disk for those of B, which fill the slab.
class Exchange : public WithHeat {
 protected:
  explicit Exchange(const ControllerConfig& config = with_disk(12)) : WithHeat(config) {}

  void SetUp() override {
    admit(kA, 32);
    write(kA, 6);
    admit(kB, 64);
    write(kB, 9);
    finish_transfers();
    ASSERT_EQ(tiers(kA)[1], Tier::kDisk);
    ASSERT_EQ(tiers(kA)[2], Tier::kDisk);
  }
  void observe_again(const std::vector<float>& a, const std::vector<float>& b) {
    observe(kA, a);
    observe(kB, b);
    write(kB, 1);
    finish_transfers();
  }
  void settle() {
    for (int plans = 0; plans < 6; ++plans) {
      idle();
      finish_transfers();
    }
  }
};

TEST_F(Exchange, AHotPageTakesThePlaceOfAColdOne) {
  const std::int64_t before = controller.stats().exchanged_pages;
  observe_again({0.0f, 0.5f}, std::vector<float>(9, 0.1f));
  settle();
  EXPECT_EQ(controller.stats().exchanged_pages, before + 1);
  EXPECT_EQ(tiers(kA)[1], Tier::kResident);
  EXPECT_EQ(tiers(kA)[2], Tier::kDisk) << "which got none";
}

TEST_F(Exchange, ALittleHotterIsNotEnough) {
  observe_again({0.0f, 0.19f}, std::vector<float>(9, 0.1f));
  settle();
  EXPECT_EQ(controller.stats().exchanged_pages, 0);
  EXPECT_EQ(tiers(kA)[1], Tier::kDisk);
}

TEST_F(Exchange, APageThatNobodyHasLookedAtIsNotKnownToBeCold) {
  observe_again({0.0f, 0.5f}, {});
  settle();
  EXPECT_EQ(controller.stats().exchanged_pages, 0);
}

TEST_F(Exchange, APageThatNobodyUsesGivesWayToAnyThatIsInUse) {
  controller.release(kB);
  idle();
  write(kA, 1);
  settle();
  EXPECT_GT(controller.stats().exchanged_pages, 0);
  EXPECT_THAT(tiers(kA), testing::Each(Tier::kResident));
}

TEST_F(Exchange, NothingGoesToAndFro) {
  observe_again({0.0f, 0.5f}, std::vector<float>(9, 0.1f));
  settle();
  ASSERT_EQ(controller.stats().exchanged_pages, 1);
  for (int replans = 0; replans < 5; ++replans) {
    observe_again({0.0f, 0.3f}, std::vector<float>(tiers(kB).size(), 0.2f));
    settle();
  }
  EXPECT_EQ(controller.stats().exchanged_pages, 1);
}

class BoundedExchange : public Exchange {
 protected:
  static ControllerConfig config() {
    ControllerConfig config = with_disk(12);
    config.exchange_pages = 1;
    return config;
  }
  BoundedExchange() : Exchange(config()) {}
};

TEST_F(BoundedExchange, OneReplanMovesNoMorePagesThanItMay) {
  observe_again({0.0f, 0.5f, 0.5f, 0.5f}, std::vector<float>(9, 0.1f));
  const std::int64_t replans = controller.stats().heat_replans;
  settle();
  const auto moved = controller.stats().moved_for[static_cast<std::size_t>(MoveReason::kExchange)];
  EXPECT_EQ(moved, 1);
  EXPECT_EQ(controller.stats().heat_replans, replans);
}

class WithoutHeat : public WithHeat {
 protected:
  static ControllerConfig config() {
    ControllerConfig config = with_disk(8);
    config.heat_window = 0;
    return config;
  }
  WithoutHeat() : WithHeat(config()) {}
};

TEST_F(WithoutHeat, ObservationsChangeNothing) {
  admit(kA, 64);
  write(kA, 7);
  EXPECT_FALSE(controller.wants_observations());
  observe(kA, {0.0f, 0.3f, 0.2f, 0.01f, 0.4f, 0.0f, 0.0f});
  write(kA, 1);
  EXPECT_EQ(grow(kA, 36), Grant::kLater);
  EXPECT_THAT(moving(kA, Tier::kDisk), ElementsAre(1));
  EXPECT_EQ(controller.stats().heat_observations, 0);
  EXPECT_EQ(controller.stats().heat_replans, 0);
}

TEST_F(WithHeat, IsAskedForOnceTheSlabIsHalfFull) {
  admit(kA, 64);
  write(kA, 3);
  EXPECT_FALSE(controller.wants_observations());
  write(kA, 1);
  EXPECT_TRUE(controller.wants_observations());
}

}  // namespace
}  // namespace hisparse::kv
