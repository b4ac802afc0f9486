#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace hisparse::base {
namespace {

TEST(ThreadPool, CallsEachIndexOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
      pool.parallel_for(count, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
      for (const auto& value : calls) EXPECT_EQ(value, 1);
    }
  }
}

TEST(ThreadPool, ResultsAreVisibleToTheCaller) {
  ThreadPool pool(3);
  std::vector<int> values(64);
  for (int round = 1; round <= 2000; ++round) {
    pool.parallel_for(64, [&](std::int64_t i) {
      for (volatile int work = 0; work < 20;) work = work + 1;  // long enough for others to help
      values[static_cast<std::size_t>(i)] = round;
    });
    for (int value : values) ASSERT_EQ(value, round);
  }
}

// More indices than there are numbers for chunks, which do not come out even.
TEST(ThreadPool, CallsEachOfVeryManyIndicesOnce) {
  for (int threads : {2, 3}) {
    ThreadPool pool(threads);
    constexpr std::int64_t kCount = ChunkShare::kMaxChunks * 6 + 2;
    constexpr std::int64_t kBeyond = 16;
    std::vector<std::atomic<std::uint8_t>> calls(kCount + kBeyond);
    pool.parallel_for(kCount, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
    for (std::size_t i = 0; i < calls.size(); ++i) ASSERT_EQ(calls[i], i < kCount ? 1 : 0) << i;
  }
}

TEST(ThreadPool, ManyCallersShareItWithoutDeadlock) {
  ThreadPool pool(2);
  constexpr int kCallers = 24;  // not all find a place to publish their jobs
  std::atomic<std::int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 300; ++round) {
        pool.parallel_for(5, [&](std::int64_t i) { sum += i; });
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(sum, kCallers * 300 * 10);
}

// The numbers of jobs wrap around on the way, and shares are closed. The third thread's share is
// empty in all jobs but the last.
TEST(ThreadPool, RunsManyJobs) {
  ThreadPool pool(3);
  std::int64_t sums[3] = {};
  constexpr int kJobs = 600'000;
  for (int job = 0; job < kJobs; ++job) {
    pool.parallel_for(2, [&](std::int64_t i) { ++sums[i]; });
  }
  pool.parallel_for(3, [&](std::int64_t i) { ++sums[i]; });
  EXPECT_EQ(sums[0], kJobs + 1);
  EXPECT_EQ(sums[1], kJobs + 1);
  EXPECT_EQ(sums[2], 1);
}

TEST(ThreadPool, ChunksMayHaveJobsOfTheirOwn) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> sum{0};
  pool.parallel_for(10, [&](std::int64_t i) {
    pool.parallel_for(10, [&](std::int64_t j) { sum += i * 10 + j; });
  });
  EXPECT_EQ(sum, 4950);
}

TEST(ThreadPool, CallerFinishesItsJobWhileTheWorkersAreHeldUp) {
  ThreadPool pool(2);
  std::atomic<bool> release{false};
  std::atomic<int> held{0};
  std::thread holder([&] {
    // Both the worker and this caller stay in the first job. Call 0 may not wait for another one.
    pool.parallel_for(3, [&](std::int64_t i) {
      if (i == 0) return;
      ++held;
      while (!release) std::this_thread::yield();
    });
  });
  while (held < 2) std::this_thread::yield();
  int done = 0;
  pool.parallel_for(10, [&](std::int64_t) { ++done; });
  EXPECT_EQ(done, 10);
  release = true;
  holder.join();
}

// Long after its own chunks are done, and after it has stopped to look for the end.
TEST(ThreadPool, CallerWaitsForALateHelper) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::atomic<bool> begun{false};
    std::atomic<bool> done{false};
    pool.parallel_for(3, [&](std::int64_t i) {
      // The caller has the first two.
      if (i == 1) {
        while (!begun) std::this_thread::yield();
      } else if (i == 2) {
        begun = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        done = true;
      }
    });
    EXPECT_TRUE(done);
  }
}

TEST(ThreadPool, WorkersHelp) {
  ThreadPool pool(2);
  std::atomic<int> inside{0};
  // Two of the calls wait for each other, so one thread alone could not finish. Not the first one:
  // it may run before all threads are told.
  pool.parallel_for(3, [&](std::int64_t i) {
    if (i == 0) return;
    ++inside;
    while (inside < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside, 2);
}

TEST(ThreadPool, WorkersTakeOverWhatTheCallerHasNotBegun) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> others{0};
    // Half of the calls are the caller's at first.
    pool.parallel_for(8, [&](std::int64_t i) {
      if (i == 1) {
        while (others < 6) std::this_thread::yield();
      } else if (i > 1) {
        ++others;
      }
    });
    EXPECT_EQ(others, 6);
  }
}

TEST(ThreadPool, SleepingWorkersWakeUp) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int> inside{0};
    pool.parallel_for(3, [&](std::int64_t i) {
      if (i == 0) return;
      ++inside;
      while (inside < 2) std::this_thread::yield();
    });
  }
}

}  // namespace
}  // namespace hisparse::base
