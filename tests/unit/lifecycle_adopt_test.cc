// Pages that an earlier process left on disk, by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "kv/lifecycle_controller.h"

namespace hisparse::kv {
namespace {

using base::SequenceId;
using base::SlotId;
using Tokens = std::vector<base::TokenId>;

constexpr std::int32_t kPageTokens = 2;
const ControllerConfig kConfig = {.page_tokens = kPageTokens,
                                  .resident_slots = 4,
                                  .host_slots = 0,
                                  .disk_slots = 6,
                                  .persistence = Persistence::kOn};
const BlockKey kRoot = root_key({"", "model", "f32"});

// Three pages of one prompt in slots 2, 0 and 5.
std::vector<PersistedPage> chain() {
  std::vector<PersistedPage> pages;
  BlockKey parent = kRoot;
  const SlotId slots[] = {SlotId(2), SlotId(0), SlotId(5)};
  for (std::int32_t depth = 0; depth < 3; ++depth) {
    pages.push_back({.slot = slots[depth],
                     .write = static_cast<std::uint64_t>(depth + 1),
                     .root = kRoot,
                     .parent = parent,
                     .depth = depth,
                     .tokens = {10 * depth, 10 * depth + 1}});
    parent = child_key(parent, pages.back().tokens);
  }
  return pages;
}
const Tokens kPrompt = {0, 1, 10, 11, 20, 21, 99};

class Adopt : public testing::Test {
 protected:
  std::int64_t matched(const std::vector<PersistedPage>& pages) {
    controller_.emplace(kConfig);
    controller_->adopt(pages);
    EXPECT_EQ(controller_->check_invariants(), std::nullopt);
    return controller_->match(kRoot, kPrompt).tokens;
  }
  std::optional<LifecycleController> controller_;
};

TEST_F(Adopt, AWholeChainIsFoundAndReadOnDisk) {
  EXPECT_EQ(matched(chain()), 6);
  const KvStats stats = controller_->stats();
  EXPECT_EQ(stats.adopted_pages, 3);
  EXPECT_EQ(stats.cached, 3);
  EXPECT_EQ(stats.unpersisted, 0);
  EXPECT_EQ(stats.tier(Tier::kDisk).ready, 3);
  PlanBuilder builder = controller_->plan();
  ASSERT_TRUE(builder.admit(SequenceId(1), kRoot, controller_->match(kRoot, kPrompt), 7));
  const KvCommit commit = controller_->commit(std::move(builder).finish());
  ASSERT_GE(commit.deltas.size(), 3u);
  EXPECT_EQ(commit.deltas[0].location, (Location{Tier::kDisk, SlotId(2)}));
  EXPECT_EQ(commit.deltas[1].location, (Location{Tier::kDisk, SlotId(0)}));
  EXPECT_EQ(commit.deltas[2].location, (Location{Tier::kDisk, SlotId(5)}));
}

TEST_F(Adopt, TheOrderOfThePagesDoesNotMatter) {
  std::vector<PersistedPage> pages = chain();
  std::swap(pages[0], pages[2]);
  EXPECT_EQ(matched(pages), 6);
}

TEST_F(Adopt, WhatIsBehindAMissingPageIsLeftOut) {
  std::vector<PersistedPage> pages = chain();
  pages.erase(pages.begin() + 1);
  EXPECT_EQ(matched(pages), 2);
  EXPECT_EQ(controller_->stats().adopted_pages, 1);
  EXPECT_EQ(controller_->stats().tier(Tier::kDisk).free, 5);
}

TEST_F(Adopt, OtherTokensAreAnotherPage) {
  std::vector<PersistedPage> pages = chain();
  pages[1].tokens[0] ^= 1;
  EXPECT_EQ(matched(pages), 2);
}

TEST_F(Adopt, PagesThatContradictThemselvesAreLeftOut) {
  const std::vector<PersistedPage> good = chain();
  const auto with = [&](auto change) {
    std::vector<PersistedPage> pages = good;
    change(pages[1]);
    return matched(pages);
  };
  EXPECT_EQ(with([](PersistedPage& page) { page.slot = SlotId(6); }), 2);
  EXPECT_EQ(with([](PersistedPage& page) { page.slot = SlotId(2); }), 2);
  EXPECT_EQ(with([](PersistedPage& page) { page.depth = 2; }), 2);
  EXPECT_EQ(with([](PersistedPage& page) { page.root.low ^= 1; }), 2);
  EXPECT_EQ(with([](PersistedPage& page) { page.tokens.pop_back(); }), 2);
  EXPECT_EQ(with([](PersistedPage& page) { page.depth = 0; }), 2);
}

TEST_F(Adopt, TheSamePageTwiceIsTakenOnce) {
  std::vector<PersistedPage> pages = chain();
  pages.push_back(pages[2]);
  pages.back().slot = SlotId(3);
  EXPECT_EQ(matched(pages), 6);
  EXPECT_EQ(controller_->stats().adopted_pages, 3);
}

TEST_F(Adopt, EveryPublishedPageGoesToDiskOnceWithWhatTheNextProcessNeeds) {
  controller_.emplace(kConfig);
  PlanBuilder builder = controller_->plan();
  ASSERT_TRUE(builder.admit(SequenceId(1), kRoot, {}, 4));
  ASSERT_EQ(builder.extend(SequenceId(1), 4), Grant::kNow);
  controller_->commit(std::move(builder).finish());
  controller_->written(SequenceId(1), Tokens{0, 1, 10, 11});
  EXPECT_EQ(controller_->stats().unpersisted, 2);
  const KvCommit commit = controller_->commit(controller_->plan().finish());
  std::vector<PersistedPage> kept;
  for (const TransferOp& op : commit.transfers.demotions) {
    EXPECT_EQ(op.reason, MoveReason::kMirror);
    ASSERT_NE(op.persisted, nullptr);
    EXPECT_EQ(op.persisted->slot, op.to.slot);
    EXPECT_EQ(op.persisted->write, write_number(op.id));
    kept.push_back(*op.persisted);
    controller_->apply({op.id, absl::OkStatus()});
  }
  EXPECT_EQ(controller_->stats().unpersisted, 0);
  EXPECT_TRUE(controller_->commit(controller_->plan().finish()).transfers.empty());
  EXPECT_EQ(matched(kept), 4);
}

// A step tells every bad slot of a prompt. It says nothing about the disk as it is now, and nothing
// of other prompts.
TEST(AdoptMany, ALongPromptThatIsBadTakesNoOtherWithIt) {
  constexpr std::int32_t kPages = 60;
  ControllerConfig config = kConfig;
  config.disk_slots = 2 * kPages;
  std::vector<PersistedPage> pages;
  Tokens prompts[2];
  for (std::int32_t prompt = 0; prompt < 2; ++prompt) {
    BlockKey parent = kRoot;
    for (std::int32_t depth = 0; depth < kPages; ++depth) {
      const Tokens tokens = {1000 * prompt + depth, depth};
      pages.push_back({.slot = SlotId(prompt * kPages + depth),
                       .write = 1,
                       .root = kRoot,
                       .parent = parent,
                       .depth = depth,
                       .tokens = tokens});
      parent = child_key(parent, tokens);
      prompts[prompt].insert(prompts[prompt].end(), tokens.begin(), tokens.end());
    }
    prompts[prompt].push_back(7);
  }
  LifecycleController controller(config);
  ASSERT_EQ(controller.adopt(pages), 2 * kPages);
  for (std::int32_t slot = 0; slot < kPages; ++slot) {
    controller.lose({Tier::kDisk, SlotId(slot)});
  }
  controller.commit(controller.plan().finish());
  EXPECT_EQ(controller.check_invariants(), std::nullopt);
  EXPECT_EQ(controller.stats().lost_pages, 1);
  EXPECT_FALSE(controller.stats().tier(Tier::kDisk).closed);
  EXPECT_EQ(controller.match(kRoot, prompts[0]).tokens, 0);
  EXPECT_EQ(controller.match(kRoot, prompts[1]).tokens, kPages * kPageTokens);
}

// After a power failure many prompts may be bad, each on its own.
TEST(AdoptMany, BadPromptsOfAnEarlierProcessDoNotCloseTheDisk) {
  constexpr std::int32_t kPrompts = 60;
  ControllerConfig config = kConfig;
  config.disk_slots = kPrompts;
  std::vector<PersistedPage> pages;
  for (std::int32_t prompt = 0; prompt < kPrompts; ++prompt) {
    pages.push_back({.slot = SlotId(prompt),
                     .write = 1,
                     .root = kRoot,
                     .parent = kRoot,
                     .depth = 0,
                     .tokens = {prompt, prompt}});
  }
  LifecycleController controller(config);
  ASSERT_EQ(controller.adopt(pages), kPrompts);
  for (std::int32_t slot = 0; slot < kPrompts; ++slot) {
    controller.lose({Tier::kDisk, SlotId(slot)});
  }
  EXPECT_EQ(controller.stats().lost_pages, kPrompts);
  EXPECT_FALSE(controller.stats().tier(Tier::kDisk).closed);
}

// The disk is full: what is kept anew takes the place of the oldest prompt, from its end on, and of
// no younger one.
TEST(AdoptMany, TheOldestPromptMakesRoomWhole) {
  ControllerConfig config = kConfig;
  config.disk_slots = 3;
  std::vector<PersistedPage> pages = chain();
  pages.pop_back();
  pages[0].slot = SlotId(0);
  pages[1].slot = SlotId(1);
  pages.push_back({.slot = SlotId(2),
                   .write = 9,
                   .root = kRoot,
                   .parent = kRoot,
                   .depth = 0,
                   .tokens = {50, 51}});
  LifecycleController controller(config);
  ASSERT_EQ(controller.adopt(pages), 3);
  PlanBuilder builder = controller.plan();
  ASSERT_TRUE(builder.admit(SequenceId(1), kRoot, {}, 4));
  ASSERT_EQ(builder.extend(SequenceId(1), 4), Grant::kNow);
  controller.commit(std::move(builder).finish());
  controller.written(SequenceId(1), Tokens{70, 71, 72, 73});
  const KvCommit commit = controller.commit(controller.plan().finish());
  EXPECT_EQ(commit.transfers.demotions.size(), 2u);
  EXPECT_EQ(controller.match(kRoot, Tokens{0, 1, 10, 11, 9}).tokens, 0);
  EXPECT_EQ(controller.match(kRoot, Tokens{50, 51, 9}).tokens, 2);
  EXPECT_EQ(controller.check_invariants(), std::nullopt);
}

// The parent was written long ago, its child just now: both are as young as the child.
TEST(AdoptMany, AParentIsAsYoungAsItsChild) {
  ControllerConfig config = kConfig;
  config.disk_slots = 3;
  std::vector<PersistedPage> pages = chain();
  const PersistedPage other = {.slot = SlotId(1),
                               .write = 9,
                               .root = kRoot,
                               .parent = kRoot,
                               .depth = 0,
                               .tokens = {50, 51}};
  pages[0].slot = SlotId(0);
  pages[1].slot = SlotId(2);
  LifecycleController controller(config);
  ASSERT_EQ(controller.adopt(std::vector<PersistedPage>{pages[0], other, pages[1]}), 3);
  EXPECT_EQ(controller.check_invariants(), std::nullopt);
  PlanBuilder builder = controller.plan();
  ASSERT_TRUE(builder.admit(SequenceId(1), kRoot, {}, 2));
  ASSERT_EQ(builder.extend(SequenceId(1), 2), Grant::kNow);
  controller.commit(std::move(builder).finish());
  controller.written(SequenceId(1), Tokens{70, 71});
  controller.commit(controller.plan().finish());
  EXPECT_EQ(controller.match(kRoot, Tokens{50, 51, 9}).tokens, 0);
  EXPECT_EQ(controller.match(kRoot, Tokens{0, 1, 10, 11, 9}).tokens, 4);
}

// Writes of this process are told from those of earlier ones.
TEST(AdoptMany, TransfersBeginAtTheNumberThatIsGiven) {
  ControllerConfig config = kConfig;
  config.first_transfer = std::int64_t{3} << 40;
  LifecycleController controller(config);
  PlanBuilder builder = controller.plan();
  ASSERT_TRUE(builder.admit(SequenceId(1), kRoot, {}, 2));
  ASSERT_EQ(builder.extend(SequenceId(1), 2), Grant::kNow);
  controller.commit(std::move(builder).finish());
  controller.written(SequenceId(1), Tokens{0, 1});
  const KvCommit commit = controller.commit(controller.plan().finish());
  ASSERT_EQ(commit.transfers.demotions.size(), 1u);
  EXPECT_EQ(commit.transfers.demotions[0].id.value(), config.first_transfer);
}

// One slot that cannot be written is not the disk.
TEST_F(Adopt, ASlotThatRefusesWritesIsTriedOnceAndThenAnother) {
  controller_.emplace(kConfig);
  PlanBuilder builder = controller_->plan();
  ASSERT_TRUE(builder.admit(SequenceId(1), kRoot, {}, 2));
  ASSERT_EQ(builder.extend(SequenceId(1), 2), Grant::kNow);
  controller_->commit(std::move(builder).finish());
  controller_->written(SequenceId(1), Tokens{0, 1});
  const auto try_once = [&](const absl::Status& status) {
    const KvCommit commit = controller_->commit(controller_->plan().finish());
    EXPECT_EQ(commit.transfers.demotions.size(), 1u);
    const TransferOp op = commit.transfers.demotions.at(0);
    controller_->apply({op.id, status});
    return op.to.slot;
  };
  const SlotId bad = try_once(absl::UnavailableError("x"));
  EXPECT_NE(try_once(absl::OkStatus()), bad);
  EXPECT_EQ(controller_->stats().unpersisted, 0);
  EXPECT_FALSE(controller_->stats().tier(Tier::kDisk).closed);
}

TEST_F(Adopt, ALostPageIsForgottenAndGoesToDiskAgain) {
  EXPECT_EQ(matched(chain()), 6);
  const KvCommit commit = controller_->lose({Tier::kDisk, SlotId(0)});
  EXPECT_THAT(commit.transfers.forgotten, testing::ElementsAre(SlotId(0)));
  EXPECT_EQ(controller_->match(kRoot, kPrompt).tokens, 2);
  EXPECT_EQ(controller_->check_invariants(), std::nullopt);
}

}  // namespace
}  // namespace hisparse::kv
