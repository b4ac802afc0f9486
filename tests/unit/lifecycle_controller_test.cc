// Behaviours of the LifecycleController, by name.
#include "kv/lifecycle_controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace hisparse::kv {
namespace {

using base::SequenceId;
using base::SlotId;
using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<base::TokenId>;

constexpr std::int32_t kPageTokens = 4;
const SequenceId kA(1);
const SequenceId kB(2);
const SequenceId kC(3);

Tokens counting(base::TokenId first, int count) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

class LifecycleControllerTest : public testing::Test {
 protected:
  explicit LifecycleControllerTest(std::int32_t slots = 4,
                                   PrefixCaching caching = PrefixCaching::kOn)
      : controller(
            {.page_tokens = kPageTokens, .resident_slots = slots, .prefix_caching = caching}) {}

  void TearDown() override { EXPECT_EQ(controller.check_invariants(), std::nullopt); }

  PrefixMatch match(const Tokens& prompt) const { return controller.match(root, prompt); }

  // Admits on the longest match, with pages for the whole prompt; must fit.
  KvCommit start(SequenceId sequence, const Tokens& prompt) {
    PlanBuilder builder = controller.plan();
    const auto tokens = static_cast<std::int64_t>(prompt.size());
    EXPECT_TRUE(builder.admit(sequence, root, match(prompt), tokens));
    EXPECT_EQ(builder.extend(sequence, tokens), Grant::kNow);
    return controller.commit(std::move(builder).finish());
  }

  std::vector<SlotId> slots(SequenceId sequence) const {
    std::vector<SlotId> slots;
    for (const Location& location : controller.locations(sequence)) slots.push_back(location.slot);
    return slots;
  }
  TierStats resident() const { return controller.stats().tier(Tier::kResident); }

  // Starts a sequence and writes what its match does not hold.
  KvCommit run(SequenceId sequence, const Tokens& prompt) {
    start(sequence, prompt);
    const auto done = static_cast<std::ptrdiff_t>(controller.written_tokens(sequence));
    return controller.written(sequence, Tokens(prompt.begin() + done, prompt.end()));
  }

  // Leaves the pages of a prompt cached.
  void cache(const Tokens& prompt) {
    const SequenceId passing(99);
    run(passing, prompt);
    controller.release(passing);
  }

  LifecycleController controller;
  const BlockKey root = root_key({"tenant", "model", "f32"});
};

TEST_F(LifecycleControllerTest, AnAdmittedSequenceGetsItsPagesInOrder) {
  const KvCommit commit = start(kA, counting(0, 5));
  ASSERT_EQ(commit.deltas.size(), 2U);
  EXPECT_EQ(commit.deltas[0].sequence, kA);
  EXPECT_EQ(commit.deltas[0].page, 0);
  EXPECT_EQ(commit.deltas[1].page, 1);
  EXPECT_THAT(slots(kA),
              ElementsAre(commit.deltas[0].location.slot, commit.deltas[1].location.slot));
  EXPECT_THAT(commit.freed, IsEmpty());
  EXPECT_EQ(controller.written_tokens(kA), 0);
  EXPECT_EQ(resident().filling, 2);
}

TEST_F(LifecycleControllerTest, AMatchIsWholePagesAndLeavesOneTokenToCompute) {
  cache(counting(0, 9));
  EXPECT_EQ(match({}).tokens, 0);
  EXPECT_EQ(match(counting(0, 4)).tokens, 0);
  EXPECT_EQ(match(counting(0, 5)).tokens, 4);
  EXPECT_EQ(match(counting(0, 8)).tokens, 4);
  EXPECT_EQ(match(counting(0, 9)).tokens, 8);
  EXPECT_EQ(match(counting(0, 30)).tokens, 8);
  EXPECT_EQ(match(counting(1, 9)).tokens, 0);
}

TEST_F(LifecycleControllerTest, APartialPageIsNotPublished) {
  run(kA, counting(0, 7));
  EXPECT_EQ(match(counting(0, 9)).tokens, 4);
  controller.written(kA, Tokens{7});
  EXPECT_EQ(match(counting(0, 9)).tokens, 8);
}

TEST_F(LifecycleControllerTest, AnotherSaltNeverMatches) {
  cache(counting(0, 8));
  EXPECT_EQ(controller.match(root_key({"other", "model", "f32"}), counting(0, 8)).tokens, 0);
}

TEST_F(LifecycleControllerTest, AMatchedSequenceSharesSlotsAndStartsBehindThem) {
  run(kA, counting(0, 8));
  const KvCommit commit = start(kB, counting(0, 9));
  EXPECT_EQ(controller.written_tokens(kB), 8);
  ASSERT_EQ(commit.deltas.size(), 3U);
  const std::vector<SlotId> a = slots(kA);
  const std::vector<SlotId> b = slots(kB);
  EXPECT_THAT(a, ElementsAre(b[0], b[1]));
  EXPECT_EQ(commit.deltas[0], (TableDelta{kB, 0, {Tier::kResident, a[0]}}));
  EXPECT_EQ(commit.deltas[1], (TableDelta{kB, 1, {Tier::kResident, a[1]}}));
  EXPECT_EQ(controller.stats().hit_tokens, 8);
  EXPECT_EQ(controller.stats().lookup_tokens, 8 + 9);
  EXPECT_EQ(controller.stats().referenced, 3);
}

TEST_F(LifecycleControllerTest, ASharedPageStaysUntilItsLastSequenceGoes) {
  run(kA, counting(0, 5));
  run(kB, counting(0, 5));
  const SlotId shared = slots(kA)[0];
  const SlotId private_tail = slots(kA)[1];
  EXPECT_THAT(controller.release(kA).freed, ElementsAre(Location{Tier::kResident, private_tail}));
  EXPECT_EQ(slots(kB)[0], shared);
  EXPECT_EQ(controller.stats().cached, 0);
  controller.release(kB);
  EXPECT_EQ(controller.stats().cached, 1);
  EXPECT_EQ(resident().free, 3);
}

TEST_F(LifecycleControllerTest, EqualPagesWrittenByTwoSequencesBecomeOne) {
  start(kA, counting(0, 8));
  start(kB, counting(0, 8));
  controller.written(kB, counting(0, 4));  // B is first with page 0
  const SlotId of_b = slots(kB)[0];
  const SlotId of_a = slots(kA)[0];
  ASSERT_NE(of_a, of_b);
  const KvCommit commit = controller.written(kA, counting(0, 8));
  EXPECT_THAT(commit.deltas, ElementsAre(TableDelta{kA, 0, {Tier::kResident, of_b}}));
  EXPECT_THAT(commit.freed, ElementsAre(Location{Tier::kResident, of_a}));
  const SlotId second_of_a = slots(kA)[1];
  EXPECT_THAT(controller.written(kB, counting(4, 4)).deltas,
              ElementsAre(TableDelta{kB, 1, {Tier::kResident, second_of_a}}));
  EXPECT_EQ(slots(kA), slots(kB));
  EXPECT_EQ(controller.stats().deduplicated_blocks, 2);
  EXPECT_EQ(resident().free, 2);
}

TEST_F(LifecycleControllerTest, ADuplicateOfACachedPageTakesItOutOfTheEvictionOrder) {
  cache(counting(0, 4));
  EXPECT_EQ(controller.stats().cached, 1);
  run(kA, counting(0, 4));  // exactly one page: nothing may match, the page is written anew
  EXPECT_EQ(controller.stats().deduplicated_blocks, 1);
  EXPECT_EQ(controller.stats().cached, 0);
  EXPECT_EQ(resident().free, 3);
}

TEST_F(LifecycleControllerTest, EqualTokensBehindDifferentPrefixesAreDifferentPages) {
  run(kA, {1, 1, 1, 1, 5, 5, 5, 5});
  run(kB, {2, 2, 2, 2, 5, 5, 5, 5});
  EXPECT_EQ(controller.stats().deduplicated_blocks, 0);
  EXPECT_EQ(match({2, 2, 2, 2, 5, 5, 5, 5, 0}).tokens, 8);
}

TEST_F(LifecycleControllerTest, CachedPagesGoOnlyWhenFreeOnesDoNotSuffice) {
  cache(counting(0, 8));
  start(kA, counting(100, 8));
  EXPECT_EQ(controller.stats().dropped_blocks, 0);
  start(kB, counting(200, 4));
  EXPECT_EQ(controller.stats().dropped_blocks, 1);
  EXPECT_EQ(match(counting(0, 9)).tokens, 4);  // the deeper page went
}

TEST_F(LifecycleControllerTest, TheLeastRecentlyUsedPrefixGoesFirst) {
  cache(counting(0, 4));
  cache(counting(50, 4));
  run(kA, counting(0, 5));  // uses the older prefix again
  controller.release(kA);
  start(kB, counting(100, 12));
  EXPECT_EQ(match(counting(0, 5)).tokens, 4);
  EXPECT_EQ(match(counting(50, 5)).tokens, 0);
}

TEST_F(LifecycleControllerTest, AMatchedPageCannotMakeRoomForItsOwnAdmission) {
  cache(counting(0, 16));
  PlanBuilder builder = controller.plan();
  EXPECT_EQ(builder.available_pages(), 4);
  // 3 pages match, 2 more are needed, and only one other page can go.
  EXPECT_FALSE(builder.admit(kA, root, match(counting(0, 16)), 20));
  EXPECT_EQ(builder.available_pages(), 4);
  EXPECT_TRUE(builder.admit(kA, root, match(counting(0, 16)), 16));
  EXPECT_EQ(builder.available_pages(), 0);
  EXPECT_EQ(builder.extend(kA, 16), Grant::kNow);
  controller.commit(std::move(builder).finish());
  EXPECT_EQ(controller.written_tokens(kA), 12);
  EXPECT_EQ(controller.stats().dropped_blocks, 1);
}

TEST_F(LifecycleControllerTest, APlanSeesItsOwnClaims) {
  PlanBuilder builder = controller.plan();
  EXPECT_EQ(builder.pages_missing(kA, 9), 3);
  EXPECT_TRUE(builder.admit(kA, root, {}, 9));
  EXPECT_EQ(builder.available_pages(), 1);
  EXPECT_EQ(builder.pages_missing(kA, 12), 0);
  EXPECT_EQ(builder.pages_missing(kA, 13), 1);
  EXPECT_FALSE(builder.admit(kB, root, {}, 5));
  EXPECT_EQ(builder.extend(kA, 16), Grant::kNow);
  EXPECT_EQ(builder.extend(kA, 17), Grant::kNoRoom);
  EXPECT_EQ(builder.available_pages(), 0);
  const KvPlan plan = std::move(builder).finish();
  ASSERT_EQ(plan.growths.size(), 1U);
  EXPECT_EQ(plan.growths[0].new_pages, 4);
  controller.commit(plan);
  EXPECT_EQ(slots(kA).size(), 4U);
  EXPECT_FALSE(controller.has(kB));
}

TEST_F(LifecycleControllerTest, AHugeRequestIsRefusedNotWrappedAround) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  PlanBuilder builder = controller.plan();
  EXPECT_EQ(builder.pages_missing(kA, kHuge), kHuge / kPageTokens + 1);
  EXPECT_FALSE(builder.admit(kA, root, {}, kHuge));
  EXPECT_TRUE(builder.admit(kA, root, {}, 1));
  EXPECT_EQ(builder.extend(kA, kHuge), Grant::kNoRoom);
}

TEST_F(LifecycleControllerTest, PreemptionMakesRoomInTheSamePlan) {
  run(kA, counting(0, 16));
  PlanBuilder builder = controller.plan();
  EXPECT_EQ(builder.available_pages(), 0);
  EXPECT_FALSE(builder.admit(kB, root, {}, 8));
  builder.release(kA);
  EXPECT_EQ(builder.available_pages(), 4);
  EXPECT_TRUE(builder.admit(kB, root, {}, 8));
  EXPECT_EQ(builder.extend(kB, 8), Grant::kNow);
  const KvCommit commit = controller.commit(std::move(builder).finish());
  EXPECT_EQ(commit.freed.size(), 2U);
  EXPECT_FALSE(controller.has(kA));
  EXPECT_EQ(match(counting(0, 17)).tokens, 8);  // the two deepest pages went
}

TEST_F(LifecycleControllerTest, APreemptedSequenceMayStartAgainOnItsOwnPages) {
  run(kA, counting(0, 10));
  const std::vector<SlotId> before = slots(kA);
  PlanBuilder builder = controller.plan();
  builder.release(kA);
  EXPECT_TRUE(builder.admit(kA, root, match(counting(0, 10)), 10));
  controller.commit(std::move(builder).finish());
  EXPECT_EQ(controller.written_tokens(kA), 8);
  EXPECT_EQ(slots(kA)[0], before[0]);
  EXPECT_EQ(slots(kA)[1], before[1]);
}

TEST_F(LifecycleControllerTest, OldCachedPagesGoBeforeThoseThatThePlanReleases) {
  cache(counting(0, 8));
  run(kA, counting(50, 8));
  PlanBuilder builder = controller.plan();
  builder.release(kA);
  EXPECT_TRUE(builder.admit(kB, root, {}, 12));
  EXPECT_EQ(builder.extend(kB, 12), Grant::kNow);
  controller.commit(std::move(builder).finish());
  EXPECT_EQ(match(counting(0, 9)).tokens, 0);
  EXPECT_EQ(match(counting(50, 9)).tokens, 4);
}

TEST_F(LifecycleControllerTest, ADroppedPlanChangesNothing) {
  cache(counting(0, 8));
  run(kA, counting(50, 6));
  const KvStats before = controller.stats();
  {
    PlanBuilder builder = controller.plan();
    builder.release(kA);
    EXPECT_TRUE(builder.admit(kB, root, match(counting(0, 8)), 12));
    const KvPlan dropped = std::move(builder).finish();
    EXPECT_EQ(dropped.admissions.size(), 1U);
  }
  EXPECT_TRUE(controller.has(kA));
  EXPECT_FALSE(controller.has(kB));
  EXPECT_EQ(resident().free, before.tier(Tier::kResident).free);
  EXPECT_EQ(controller.stats().cached, before.cached);
}

TEST_F(LifecycleControllerTest, AStrayCompletionIsCountedAndChangesNothingElse) {
  cache(counting(0, 8));
  const PrefixMatch still_valid = match(counting(0, 8));
  controller.apply({.id = base::TransferId(5), .status = absl::OkStatus()});
  controller.apply({.id = base::TransferId(5), .status = absl::AbortedError("lost")});
  EXPECT_EQ(controller.stats().stray_completions, 2);
  PlanBuilder builder = controller.plan();
  EXPECT_TRUE(builder.admit(kA, root, still_valid, 8));
}

class WithoutCaching : public LifecycleControllerTest {
 protected:
  WithoutCaching() : LifecycleControllerTest(4, PrefixCaching::kOff) {}
};

TEST_F(WithoutCaching, NothingMatchesAndAReleaseFreesEverything) {
  run(kA, counting(0, 8));
  EXPECT_EQ(match(counting(0, 9)).tokens, 0);
  EXPECT_EQ(resident().ready, 2);
  run(kB, counting(0, 8));
  EXPECT_EQ(controller.stats().deduplicated_blocks, 0);
  EXPECT_EQ(controller.release(kA).freed.size(), 2U);
  EXPECT_EQ(controller.release(kB).freed.size(), 2U);
  EXPECT_EQ(resident().free, 4);
}

class WithoutSlots : public LifecycleControllerTest {
 protected:
  WithoutSlots() : LifecycleControllerTest(0) {}
};

TEST_F(WithoutSlots, OnlyAnEmptySequenceFits) {
  PlanBuilder builder = controller.plan();
  EXPECT_EQ(builder.available_pages(), 0);
  EXPECT_FALSE(builder.admit(kA, root, {}, 1));
  EXPECT_TRUE(builder.admit(kA, root, {}, 0));
  controller.commit(std::move(builder).finish());
  EXPECT_TRUE(controller.has(kA));
  controller.release(kA);
}

using LifecycleControllerDeathTest = LifecycleControllerTest;

TEST_F(LifecycleControllerDeathTest, OurOwnMistakesAreCaught) {
  run(kA, counting(0, 5));
  EXPECT_DEATH(controller.release(kC), "check failed");
  EXPECT_DEATH(controller.written_tokens(kC), "check failed");
  EXPECT_DEATH(controller.written(kC, Tokens{1}), "check failed");
  EXPECT_DEATH(controller.written(kA, counting(0, 4)), "check failed");
  EXPECT_DEATH(controller.commit(KvPlan{}), "check failed");
  EXPECT_DEATH((void)controller.plan().admit(kA, root, {}, 1), "check failed");
  EXPECT_DEATH((void)controller.plan().extend(kC, 1), "check failed");
  EXPECT_DEATH(controller.plan().release(kC), "check failed");
}

TEST_F(LifecycleControllerDeathTest, APlanForAnEarlierStateIsRefused) {
  PlanBuilder builder = controller.plan();
  EXPECT_TRUE(builder.admit(kA, root, {}, 4));
  EXPECT_EQ(builder.extend(kA, 4), Grant::kNow);
  const KvPlan plan = std::move(builder).finish();
  controller.commit(plan);
  EXPECT_DEATH(controller.commit(plan), "check failed");
  PlanBuilder late = controller.plan();
  controller.written(kA, Tokens{1});
  EXPECT_DEATH((void)late.extend(kA, 5), "check failed");
}

// Its block id may hold another tenant's rows by now.
TEST_F(LifecycleControllerDeathTest, AMatchFromAnEarlierStateIsRefused) {
  cache(counting(0, 4));
  const PrefixMatch stale = match(counting(0, 5));
  cache(counting(10, 16));
  EXPECT_DEATH((void)controller.plan().admit(kA, root, stale, 5), "check failed");
}

TEST_F(LifecycleControllerDeathTest, AMatchUnderAnotherRootIsRefused) {
  cache(counting(0, 4));
  const BlockKey other = root_key({"other", "model", "f32"});
  EXPECT_DEATH((void)controller.plan().admit(kA, other, match(counting(0, 5)), 5), "check failed");
}

TEST_F(LifecycleControllerDeathTest, APlanMayNotReleaseWhatItExtended) {
  run(kA, counting(0, 4));
  PlanBuilder builder = controller.plan();
  EXPECT_EQ(builder.extend(kA, 4), Grant::kNow);  // no new page, and yet part of the step
  EXPECT_DEATH(builder.release(kA), "check failed");
  PlanBuilder twice = controller.plan();
  twice.release(kA);
  EXPECT_DEATH(twice.release(kA), "check failed");
  EXPECT_DEATH((void)twice.extend(kA, 8), "check failed");
}

}  // namespace
}  // namespace hisparse::kv
