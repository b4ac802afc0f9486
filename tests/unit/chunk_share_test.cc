#include "base/chunk_share.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace hisparse::base {
namespace {

constexpr std::int64_t kNone = ChunkShare::kNone;
constexpr ChunkRange kFirst = {.begin = 10, .end = 15};

void expect_range(const ChunkRange& range, std::int64_t begin, std::int64_t end) {
  EXPECT_EQ(range.begin, begin);
  EXPECT_EQ(range.end, end);
}

TEST(ChunkShare, GivesItsOwnerChunkAfterChunk) {
  ChunkShare share;
  for (std::int64_t chunk = 10; chunk < 15; ++chunk) EXPECT_EQ(share.take(2, kFirst), chunk);
  EXPECT_EQ(share.take(2, kFirst), kNone);
  EXPECT_TRUE(share.steal(2, kFirst).empty());
}

TEST(ChunkShare, GivesOthersTheBackHalf) {
  ChunkShare share;
  expect_range(share.steal(2, kFirst), 12, 15);
  EXPECT_EQ(share.take(2, kFirst), 10);
  expect_range(share.steal(2, kFirst), 11, 12);
  EXPECT_TRUE(share.steal(2, kFirst).empty());
  EXPECT_EQ(share.take(2, kFirst), kNone);
}

TEST(ChunkShare, CanBeFilledAgain) {
  ChunkShare share;
  EXPECT_EQ(share.take(2, {.begin = 0, .end = 1}), 0);
  share.refill(2, {.begin = 40, .end = 42});
  EXPECT_EQ(share.take(2, {.begin = 0, .end = 1}), 40);
  expect_range(share.steal(2, {.begin = 0, .end = 1}), 41, 42);
  EXPECT_EQ(share.take(2, {.begin = 0, .end = 1}), kNone);
}

TEST(ChunkShare, IsFullAgainForTheNextJob) {
  ChunkShare share;
  while (share.take(2, kFirst) != kNone) {
  }
  EXPECT_EQ(share.take(4, kFirst), 10);
  expect_range(share.steal(100, kFirst), 12, 15);
  EXPECT_EQ(share.take(102, {}), kNone);
}

TEST(ChunkShare, HasNothingForAJobThatIsOver) {
  ChunkShare share;
  EXPECT_EQ(share.take(4, kFirst), 10);
  EXPECT_EQ(share.take(2, kFirst), kNone);
  EXPECT_TRUE(share.steal(2, kFirst).empty());
  EXPECT_EQ(share.take(4, kFirst), 11);
}

TEST(ChunkShare, NumbersWrapAround) {
  ChunkShare share;
  share.close(0xFFFFFFFCu);
  EXPECT_EQ(share.take(0xFFFFFFFEu, kFirst), 10);
  EXPECT_EQ(share.take(0, kFirst), 10);
  EXPECT_EQ(share.take(0xFFFFFFFEu, kFirst), kNone);
  EXPECT_EQ(share.take(0, kFirst), 11);
}

TEST(ChunkShare, AClosedJobHasNothingAndTheNextOneAll) {
  ChunkShare share;
  share.close(8);
  EXPECT_EQ(share.take(6, kFirst), kNone);
  EXPECT_TRUE(share.steal(8, kFirst).empty());
  EXPECT_EQ(share.done(8), 0);
  EXPECT_EQ(share.take(10, {.begin = ChunkShare::kMaxChunks - 1, .end = ChunkShare::kMaxChunks}),
            ChunkShare::kMaxChunks - 1);
}

TEST(ChunkShare, KnowsWhatItsOwnerHasDone) {
  ChunkShare share;
  EXPECT_EQ(share.done(2), 0);
  share.tell_done(2, 7);
  EXPECT_EQ(share.done(2), 7);
  share.tell_done(2, 9);
  EXPECT_EQ(share.done(2), 9);
  EXPECT_EQ(share.done(4), 0);
}

// The owner takes, the others steal; some are at earlier and some at later jobs meanwhile.
TEST(ChunkShare, EachChunkIsTakenOnceWhileManyThreadsTakeThem) {
  constexpr std::int64_t kChunks = 3000;
  constexpr std::uint32_t kJobs = 20;
  constexpr ChunkRange kAll = {.begin = 0, .end = kChunks};
  ChunkShare share;
  std::vector<std::atomic<int>> taken(kChunks * kJobs);
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ++ready;
      while (ready < 4) std::this_thread::yield();
      for (std::uint32_t job = 0; job < kJobs; ++job) {
        const std::uint32_t number = 2 * (job + 1);
        for (ChunkRange range = kAll; !range.empty();) {
          if (t == 0) {
            const std::int64_t chunk = share.take(number, kAll);
            range = chunk == kNone ? ChunkRange{} : ChunkRange{.begin = chunk, .end = chunk + 1};
          } else {
            range = share.steal(number, kAll);
          }
          for (std::int64_t i = range.begin; i < range.end; ++i) {
            ++taken[static_cast<std::size_t>(job * kChunks + i)];
          }
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& count : taken) ASSERT_EQ(count, 1);
}

}  // namespace
}  // namespace hisparse::base
