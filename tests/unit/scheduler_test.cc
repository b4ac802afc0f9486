// The scheduler over the real LifecycleController: what runs next, who is admitted, who gives way.
#include "sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "tests/unit/scheduler_rig.h"

namespace hisparse::sched {

namespace {

using base::SequenceId;
using test::kPageTokens;
using test::Member;
using test::Rig;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

const SequenceId kA(1);
const SequenceId kB(2);
const SequenceId kC(3);
const SequenceId kD(4);

TEST(Scheduler, DecodeRowsComeBeforePrefillChunksWhateverTheirAge) {
  Rig rig(16, {.max_batched_tokens = 6});
  rig.run(kA, {.tokens = 12, .written = 2});
  rig.run(kB, {.tokens = 3, .written = 2});
  rig.run(kC, {.tokens = 7, .written = 6});
  EXPECT_THAT(rig.step().rows,
              ElementsAre(ScheduledRows{kB, 2, 1, true}, ScheduledRows{kC, 6, 1, true},
                          ScheduledRows{kA, 2, 4, false}));
}

TEST(Scheduler, DecodesBeyondTheBudgetAreTheYoungest) {
  Rig rig(16, {.max_batched_tokens = 2});
  for (const SequenceId id : {kA, kB, kC}) rig.run(id, {.tokens = 3, .written = 2});
  rig.wait(kD, {.tokens = 1});
  const ScheduleResult result = rig.step();
  EXPECT_THAT(result.rows,
              ElementsAre(ScheduledRows{kA, 2, 1, true}, ScheduledRows{kB, 2, 1, true}));
  EXPECT_THAT(result.admitted, IsEmpty());
}

TEST(Scheduler, ChunksFillTheRestOfTheBudgetOldestFirst) {
  Rig rig(16, {.max_batched_tokens = 12});
  rig.run(kA, {.tokens = 9, .written = 4});
  rig.run(kB, {.tokens = 8, .written = 3});
  rig.wait(kC, {.tokens = 6});
  EXPECT_THAT(rig.step().rows,
              ElementsAre(ScheduledRows{kA, 4, 5, true}, ScheduledRows{kB, 3, 5, true},
                          ScheduledRows{kC, 0, 2, false}));
  EXPECT_EQ(rig.pages(kC), 1) << "resident pages come chunk by chunk";
  EXPECT_EQ(rig.controller().plan().available_pages(), 16 - 3 - 2 - 2)
      << "an admitted request has room for all that it knows";
}

TEST(Scheduler, AChunkEndsWhereTheBudgetEnds) {
  Rig rig(16, {.max_batched_tokens = 3});
  rig.run(kA, {.tokens = 8, .written = 0});
  rig.run(kB, {.tokens = 8, .written = 0});
  EXPECT_THAT(rig.step().rows, ElementsAre(ScheduledRows{kA, 0, 3, false}));
  EXPECT_THAT(rig.step().rows, ElementsAre(ScheduledRows{kA, 3, 3, false}));
  EXPECT_THAT(rig.step().rows,
              ElementsAre(ScheduledRows{kA, 6, 2, true}, ScheduledRows{kB, 0, 1, false}));
}

TEST(Scheduler, RequestsAreAdmittedInOrderOfArrival) {
  Rig rig(8);
  rig.wait(kA, {.tokens = 5});
  rig.wait(kB, {.tokens = 2});
  rig.wait(kC, {.tokens = 3});
  const ScheduleResult result = rig.step();
  EXPECT_THAT(result.admitted, ElementsAre(kA, kB, kC));
  EXPECT_THAT(result.rows, ElementsAre(ScheduledRows{kA, 0, 5, true}, ScheduledRows{kB, 0, 2, true},
                                       ScheduledRows{kC, 0, 3, true}));
  EXPECT_FALSE(result.starved.valid());
}

TEST(Scheduler, NobodyPassesARequestThatDoesNotFit) {
  Rig rig(4);
  rig.run(kA, {.tokens = 3, .written = 2});
  rig.wait(kB, {.tokens = 13});  // 4 pages of 3
  rig.wait(kC, {.tokens = 1});
  const ScheduleResult result = rig.step();
  EXPECT_THAT(result.admitted, IsEmpty());
  EXPECT_THAT(result.rows, ElementsAre(ScheduledRows{kA, 2, 1, true}));
}

TEST(Scheduler, SeatsLimitAdmission) {
  Rig rig(16, {.max_sequences = 3});
  rig.run(kA, {.tokens = 3, .written = 2});
  rig.wait(kB, {.tokens = 2});
  rig.wait(kC, {.tokens = 2});
  rig.wait(kD, {.tokens = 2});
  EXPECT_THAT(rig.step().admitted, ElementsAre(kB, kC));
  EXPECT_THAT(rig.step().admitted, IsEmpty());
  rig.retire(kB);
  EXPECT_THAT(rig.step().admitted, ElementsAre(kD));
}

TEST(Scheduler, AdmissionLeavesAPageForEachRequestThatRuns) {
  Rig rig(4);
  rig.run(kA, {.tokens = 3, .written = 2});
  rig.wait(kB, {.tokens = 12});  // 3 pages of 3
  EXPECT_THAT(rig.schedule().admitted, IsEmpty());
  rig.waiting.clear();
  rig.wait(kC, {.tokens = 8});
  EXPECT_THAT(rig.schedule().admitted, ElementsAre(kC));
}

TEST(Scheduler, APageIsTakenFromTheYoungestRequest) {
  Rig rig(3);
  for (const SequenceId id : {kA, kB, kC}) rig.run(id, {.tokens = 5, .written = 4});
  const ScheduleResult result = rig.step();
  EXPECT_THAT(result.preempted, ElementsAre(kC));
  EXPECT_THAT(result.rows, ElementsAre(ScheduledRows{kA, 4, 1, true}))
      << "one page was freed: B waits for the next";
  EXPECT_EQ(rig.pages(kA), 2);
  EXPECT_EQ(rig.pages(kB), 1);
  EXPECT_FALSE(rig.controller().has(kC));
  EXPECT_FALSE(result.starved.valid());
}

TEST(Scheduler, NoMoreIsTakenThanIsNeeded) {
  Rig rig(4);
  rig.run(kA, {.tokens = 5, .written = 4});
  rig.run(kB, {.tokens = 3, .written = 2});
  rig.run(kC, {.tokens = 7, .written = 6});
  const ScheduleResult result = rig.step();
  EXPECT_THAT(result.preempted, ElementsAre(kC));
  EXPECT_THAT(result.rows,
              ElementsAre(ScheduledRows{kA, 4, 1, true}, ScheduledRows{kB, 2, 1, true}));
}

TEST(Scheduler, APrefillGivesWayToAnOlderDecode) {
  Rig rig(3);
  rig.run(kA, {.tokens = 5, .written = 4});
  rig.run(kB, {.tokens = 8, .written = 3});
  const ScheduleResult result = rig.step();
  EXPECT_THAT(result.preempted, ElementsAre(kB));
  EXPECT_THAT(result.rows, ElementsAre(ScheduledRows{kA, 4, 1, true}));
}

TEST(Scheduler, NothingIsTakenFromAnOlderRequest) {
  Rig rig(3);
  rig.run(kA, {.tokens = 7, .written = 6});
  rig.run(kB, {.tokens = 5, .written = 4});
  const ScheduleResult result = rig.step();
  EXPECT_THAT(result.preempted, IsEmpty());
  EXPECT_THAT(result.rows, ElementsAre(ScheduledRows{kA, 6, 1, true}));
  EXPECT_FALSE(result.starved.valid());
}

TEST(Scheduler, NothingIsTakenFromARequestAtTheCap) {
  Rig rig(3, {.max_preemptions = 2});
  rig.run(kA, {.tokens = 5, .written = 4});
  rig.run(kB, {.tokens = 3, .written = 2, .preemptions = 1});
  rig.run(kC, {.tokens = 3, .written = 2, .preemptions = 2});
  const ScheduleResult result = rig.step();
  EXPECT_THAT(result.preempted, ElementsAre(kB));
  EXPECT_THAT(result.rows,
              ElementsAre(ScheduledRows{kA, 4, 1, true}, ScheduledRows{kC, 2, 1, true}));
}

TEST(Scheduler, AYoungerRequestAtTheCapGoesOnWhileAnOlderOneWaits) {
  Rig rig(2, {.max_preemptions = 2});
  rig.run(kA, {.tokens = 5, .written = 4});
  rig.run(kB, {.tokens = 3, .written = 2, .preemptions = 2});
  const ScheduleResult result = rig.step();
  EXPECT_THAT(result.preempted, IsEmpty());
  EXPECT_THAT(result.rows, ElementsAre(ScheduledRows{kB, 2, 1, true}));
  EXPECT_FALSE(result.starved.valid());
}

TEST(Scheduler, NobodyIsAdmittedInAStepThatPreempted) {
  Rig rig(6);
  rig.run(kA, {.tokens = 5, .written = 4});
  rig.run(kB, {.tokens = 21, .written = 20});
  rig.wait(kC, {.tokens = 1});
  const ScheduleResult result = rig.step();
  ASSERT_THAT(result.preempted, ElementsAre(kB));
  ASSERT_GE(
      rig.controller().stats().tier(kv::Tier::kResident).free + rig.controller().stats().cached, 3)
      << "there must be room for C, or the test says nothing";
  EXPECT_THAT(result.admitted, IsEmpty());
}

TEST(Scheduler, ACappedRequestIsAdmittedOnlyWithPagesForItsWorstCase) {
  const SchedulerConfig config{.max_preemptions = 1};
  Rig tight(4, config);
  tight.wait(kA, {.tokens = 5, .worst_case = 17, .preemptions = 1});
  EXPECT_THAT(tight.schedule().admitted, IsEmpty());
  Rig fits(4, config);
  fits.wait(kA, {.tokens = 5, .worst_case = 16, .preemptions = 1});
  EXPECT_THAT(fits.step().admitted, ElementsAre(kA));
  EXPECT_EQ(fits.controller().plan().available_pages(), 0);
  Rig uncapped(4, config);
  uncapped.wait(kA, {.tokens = 5, .worst_case = 17, .preemptions = 0});
  EXPECT_THAT(uncapped.step().admitted, ElementsAre(kA));
  EXPECT_EQ(uncapped.controller().plan().available_pages(), 2);
}

TEST(Scheduler, ACappedRequestNeedsNoFurtherPagesToItsEnd) {
  constexpr std::int64_t kWorstCase = 16;
  Rig rig(4, {.max_preemptions = 1});
  rig.wait(kB, {.tokens = 5, .worst_case = kWorstCase, .preemptions = 1});
  rig.step();
  while (rig.running.front().written < kWorstCase) {
    const ScheduleResult result = rig.step();
    ASSERT_THAT(result.rows, Contains(Field(&ScheduledRows::id, kB)));
    ASSERT_EQ(rig.controller().plan().available_pages(), 0);
    ASSERT_THAT(result.kv.releases, IsEmpty());
  }
}

TEST(Scheduler, StarvedNamesTheHeadOfTheQueueWhenNothingRuns) {
  Rig rig(2);
  rig.wait(kA, {.tokens = 9});
  rig.wait(kB, {.tokens = 1});
  const ScheduleResult result = rig.schedule();
  EXPECT_EQ(result.starved, kA);
  EXPECT_THAT(result.rows, IsEmpty());
  EXPECT_THAT(result.admitted, IsEmpty());
}

TEST(Scheduler, StarvedNamesTheOldestThatRunsWhenItCannotGoOn) {
  Rig rig(2, {.max_preemptions = 0});
  rig.run(kA, {.tokens = 5, .written = 4});
  rig.run(kB, {.tokens = 5, .written = 4});
  rig.wait(kC, {.tokens = 1});
  EXPECT_EQ(rig.schedule().starved, kA);
}

TEST(Scheduler, NobodyIsStarvedWhenThereIsNothingToDo) {
  const Rig rig(2);
  const ScheduleResult result = rig.schedule();
  EXPECT_FALSE(result.starved.valid());
  EXPECT_THAT(result.rows, IsEmpty());
}

TEST(Scheduler, AMatchedPrefixShortensTheFirstChunk) {
  Rig rig(8);
  rig.wait(kA, {.tokens = 10, .first_token = 0});
  rig.step();
  rig.retire(kA);
  rig.wait(kB, {.tokens = 11, .first_token = 0});
  const ScheduleResult result = rig.step();
  EXPECT_THAT(result.rows, ElementsAre(ScheduledRows{kB, 8, 3, true}));
  EXPECT_EQ(rig.controller().stats().hit_tokens, 8);
}

TEST(Scheduler, AMatchedPrefixCountsAgainstTheMissingPages) {
  Rig rig(4);
  rig.run(kA, {.tokens = 10, .written = 9, .first_token = 0});  // 3 pages, two of them full
  rig.wait(kB, {.tokens = 9, .first_token = 0});
  EXPECT_THAT(rig.schedule().admitted, IsEmpty()) << "one page is left, and A may need it";
  Rig roomy(5);
  roomy.run(kA, {.tokens = 10, .written = 9, .first_token = 0});
  roomy.wait(kB, {.tokens = 9, .first_token = 0});
  EXPECT_THAT(roomy.step().admitted, ElementsAre(kB));
  EXPECT_EQ(roomy.controller().stats().tier(kv::Tier::kResident).free, 1);
}

TEST(Scheduler, AChunkWaitsWhileTheLargerPartOfItsRoomIsMade) {
  Rig rig(4, {.max_batched_tokens = 16}, 12);
  rig.wait(kA, {.tokens = 32});
  EXPECT_THAT(rig.step().rows, ElementsAre(ScheduledRows{kA, 0, 16, false}));
  EXPECT_THAT(rig.step().rows, IsEmpty());
  ASSERT_EQ(rig.transfers(), 4U) << "its own pages go down, as many as the chunk lacks";
  rig.finish_transfers(1);
  const ScheduleResult early = rig.step();
  EXPECT_THAT(early.rows, IsEmpty()) << "a page of four: each chunk reads all that is below";
  EXPECT_FALSE(early.starved.valid());
  rig.finish_transfers(3);
  EXPECT_THAT(rig.step().rows, ElementsAre(ScheduledRows{kA, 16, 16, true}));
}

TEST(Scheduler, NobodyIsPreemptedWhoHasNoSlotToGive) {
  Rig rig(1, {}, 30);
  for (const SequenceId id : {kA, kB, kC}) rig.wait(id, {.tokens = 2});
  EXPECT_THAT(rig.step().rows, ElementsAre(ScheduledRows{kA, 0, 2, true}));
  const ScheduleResult result = rig.step();
  EXPECT_THAT(result.rows, ElementsAre(ScheduledRows{kA, 2, 1, true}));
  EXPECT_THAT(result.preempted, IsEmpty()) << "A holds the only slot, and is older";
}

TEST(Scheduler, SchedulingChangesNothing) {
  Rig rig(3);
  for (const SequenceId id : {kA, kB, kC}) rig.run(id, {.tokens = 5, .written = 4});
  const ScheduleResult first = rig.schedule();
  const ScheduleResult second = rig.schedule();
  EXPECT_EQ(first.rows, second.rows);
  EXPECT_EQ(first.preempted, second.preempted);
  EXPECT_TRUE(rig.controller().has(kC));
  rig.step();
  EXPECT_FALSE(rig.controller().has(kC));
}

// Every request of a random crowd runs to its end, and no plan ever breaks a promise on the way.
void run_crowd(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const std::int32_t slots = static_cast<std::int32_t>(pick(4, 10));
  const SchedulerConfig config{.max_batched_tokens = pick(3, 20),
                               .max_sequences = static_cast<std::int32_t>(pick(1, 3)),
                               .max_preemptions = static_cast<std::int32_t>(pick(0, 2))};
  Rig rig(slots, config);
  constexpr int kRequests = 12;
  for (int i = 1; i <= kRequests; ++i) {
    const std::int64_t prompt = pick(1, 2 * kPageTokens);
    const bool shared = pick(0, 1) == 0;
    rig.wait(SequenceId(i), {.tokens = prompt,
                             .worst_case = prompt + pick(1, 2 * kPageTokens),
                             .first_token = shared ? 0 : -1});
  }
  constexpr int kMostSteps = 5000;
  int steps = 0;
  for (; !(rig.running.empty() && rig.waiting.empty()) && steps < kMostSteps; ++steps) {
    const ScheduleResult result = rig.step(static_cast<base::TokenId>(pick(0, 3)));
    ASSERT_FALSE(result.starved.valid());
    ASSERT_LE(rig.running.size(), static_cast<std::size_t>(config.max_sequences));
    std::int64_t rows = 0;
    std::set<SequenceId> seen;
    for (const ScheduledRows& part : result.rows) {
      rows += part.count;
      ASSERT_TRUE(seen.insert(part.id).second);
    }
    ASSERT_LE(rows, config.max_batched_tokens);
    for (const auto* members : {&rig.running, &rig.waiting}) {
      for (const Member& member : *members) {
        ASSERT_LE(member.preemptions, config.max_preemptions);
      }
    }
    std::vector<SequenceId> ended;
    for (const Member& member : rig.running) {
      if (static_cast<std::int64_t>(member.content.size()) >= member.worst_case) {
        ended.push_back(member.id);
      }
    }
    for (const SequenceId id : ended) rig.retire(id);
  }
  EXPECT_LT(steps, kMostSteps) << "livelock";
  EXPECT_EQ(rig.controller().stats().referenced, 0);
}

TEST(Scheduler, ARandomCrowdRunsToItsEnd) {
  constexpr std::uint64_t kSeeds = 300;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    run_crowd(seed);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace hisparse::sched
