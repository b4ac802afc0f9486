#include "base/chunk_share.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace hisparse::base {
namespace {

constexpr std::int64_t kNone = ChunkShare::kNone;

TEST(ChunkShare, GivesItsChunksFromBothEnds) {
  ChunkShare share;
  EXPECT_EQ(share.take_front(2, 5), 0);
  EXPECT_EQ(share.take_back(2, 5), 4);
  EXPECT_EQ(share.take_front(2, 5), 1);
  EXPECT_EQ(share.take_back(2, 5), 3);
  EXPECT_EQ(share.take_back(2, 5), 2);
  EXPECT_EQ(share.take_front(2, 5), kNone);
  EXPECT_EQ(share.take_back(2, 5), kNone);
}

TEST(ChunkShare, IsFullAgainForTheNextJob) {
  ChunkShare share;
  EXPECT_EQ(share.take_front(2, 1), 0);
  EXPECT_EQ(share.take_front(2, 1), kNone);
  EXPECT_EQ(share.take_back(4, 2), 1);
  EXPECT_EQ(share.take_front(4, 2), 0);
  EXPECT_EQ(share.take_front(4, 2), kNone);
  EXPECT_EQ(share.take_front(100, 0), kNone);
}

TEST(ChunkShare, HasNothingForAJobThatIsOver) {
  ChunkShare share;
  EXPECT_EQ(share.take_front(4, 3), 0);
  EXPECT_EQ(share.take_front(2, 3), kNone);
  EXPECT_EQ(share.take_back(2, 3), kNone);
  EXPECT_EQ(share.take_front(4, 3), 1);
}

TEST(ChunkShare, NumbersWrapAround) {
  ChunkShare share;
  share.close(0xFFFFFFFCu);
  EXPECT_EQ(share.take_front(0xFFFFFFFEu, 2), 0);
  EXPECT_EQ(share.take_front(0, 2), 0);
  EXPECT_EQ(share.take_front(0xFFFFFFFEu, 2), kNone);
  EXPECT_EQ(share.take_back(0, 2), 1);
}

TEST(ChunkShare, AClosedJobHasNothingAndTheNextOneAll) {
  ChunkShare share;
  share.close(8);
  EXPECT_EQ(share.take_front(6, ChunkShare::kMaxChunks), kNone);
  EXPECT_EQ(share.take_back(8, ChunkShare::kMaxChunks), kNone);
  EXPECT_EQ(share.done(8), 0);
  EXPECT_EQ(share.take_back(10, ChunkShare::kMaxChunks), ChunkShare::kMaxChunks - 1);
}

TEST(ChunkShare, KnowsWhatItsOwnerHasDone) {
  ChunkShare share;
  EXPECT_EQ(share.done(2), 0);
  share.leave(2, 7);
  EXPECT_EQ(share.done(2), 7);
  EXPECT_EQ(share.done(4), 0);
}

TEST(ChunkShare, EachChunkIsTakenOnceWhileManyThreadsTakeThem) {
  constexpr std::int64_t kChunks = 3000;
  constexpr std::uint32_t kJobs = 20;
  ChunkShare share;
  std::vector<std::atomic<int>> taken(kChunks * kJobs);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      // The others are at earlier and at later jobs meanwhile.
      for (std::uint32_t job = 0; job < kJobs; ++job) {
        const std::uint32_t number = 2 * (job + 1);
        for (;;) {
          const std::int64_t chunk =
              t == 0 ? share.take_front(number, kChunks) : share.take_back(number, kChunks);
          if (chunk == kNone) break;
          ++taken[static_cast<std::size_t>(job * kChunks + chunk)];
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& count : taken) ASSERT_EQ(count, 1);
}

}  // namespace
}  // namespace hisparse::base
