#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "cpu_test_support.h"

namespace hisparse::comm {
namespace {

using device::Buffer;
using device::TestDevice;

// One device, stream and communicator per rank, on one shared pool.
class Group final {
 public:
  Group(int ranks, device::CpuDeviceOptions options) : pool_(2) {
    std::vector<device::Device*> devices;
    for (int r = 0; r < ranks; ++r) {
      ranks_.push_back(std::make_unique<TestDevice>(options, pool_));
      devices.push_back(ranks_.back()->device.get());
      ++options.chaos_seed;
    }
    communicators_ = make_thread_communicators(devices);
  }

  // Runs body(rank) on one thread per rank.
  void run(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < size(); ++r) threads.emplace_back([&, r] { body(r); });
    for (auto& thread : threads) thread.join();
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  TestDevice& device(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  Communicator& comm(int rank) { return *communicators_[static_cast<std::size_t>(rank)]; }

 private:
  base::ThreadPool pool_;
  std::vector<std::unique_ptr<TestDevice>> ranks_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

std::vector<float> input(int rank, int round, std::int64_t count) {
  return device::random_floats(count, static_cast<std::uint32_t>(1000 * round + rank));
}

std::vector<float> ordered_sum(int ranks, int round, std::int64_t count) {
  auto sum = input(0, round, count);
  for (int r = 1; r < ranks; ++r) {
    const auto addend = input(r, round, count);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
  }
  return sum;
}

std::vector<device::CpuDeviceOptions> modes() {
  auto immediate = device::test_options();
  auto deferred = immediate;
  deferred.streams = device::StreamMode::kDeferred;
  return {immediate, deferred};
}

TEST(ThreadCommunicator, AllReduceIsTheOrderedSumOnEveryRank) {
  for (const auto& options : modes()) {
    for (int ranks : {1, 2, 3, 8}) {
      Group group(ranks, options);
      group.run([&](int rank) {
        int round = 0;
        for (std::int64_t count : {1, 15, 17, 576, 5000, 40001}) {
          Buffer buffer = group.device(rank).upload(input(rank, ++round, count));
          group.comm(rank).all_reduce_sum(buffer.as<float>(), count, *group.device(rank).stream);
          EXPECT_TRUE(device::same_bits(group.device(rank).download(buffer),
                                        ordered_sum(ranks, round, count)));
        }
        EXPECT_EQ(group.comm(rank).rank(), rank);
        EXPECT_EQ(group.comm(rank).size(), ranks);
        EXPECT_TRUE(group.comm(rank).status().ok());
      });
    }
  }
}

TEST(ThreadCommunicator, GathersTheColumnsOfAllRanks) {
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kWidth = 7;
  for (const auto& options : modes()) {
    for (int ranks : {1, 2, 3, 8}) {
      Group group(ranks, options);
      group.run([&](int rank) {
        Buffer in = group.device(rank).upload(input(rank, 0, kRows * kWidth));
        Buffer out = group.device(rank).floats(kRows * kWidth * ranks);
        group.comm(rank).all_gather_columns(in.as<float>(), out.as<float>(), kRows, kWidth,
                                            *group.device(rank).stream);
        const auto result = group.device(rank).download(out);
        for (int r = 0; r < ranks; ++r) {
          const auto expected = input(r, 0, kRows * kWidth);
          for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
            EXPECT_EQ(result[i / kWidth * kWidth * ranks + r * kWidth + i % kWidth], expected[i]);
          }
        }
      });
    }
  }
}

TEST(ThreadCommunicator, ManyRoundsOnOneBufferKeepTheRanksInStep) {
  constexpr int kRounds = 200;
  for (const auto& options : modes()) {
    Group group(8, options);
    group.run([&](int rank) {
      Buffer buffer = group.device(rank).upload(std::vector<float>(33, rank == 0 ? 1.0f : 0.0f));
      Buffer zero = group.device(rank).upload(std::vector<float>(33, 0.0f));
      auto& device = group.device(rank);
      for (int round = 0; round < kRounds; ++round) {
        group.comm(rank).all_reduce_sum(buffer.as<float>(), 33, *device.stream);
        // Only rank 0 keeps its ones, plus one more: the sum counts the rounds.
        if (rank != 0)
          device.device->fill(buffer.as<std::byte>(), std::byte{0}, 132, *device.stream);
        if (rank == 0) {
          const std::vector<float> one(33, 1.0f);
          device.device->copy_to_device(std::as_bytes(std::span(one)), zero.as<std::byte>(),
                                        *device.stream);
          device.device->add(
              {.accumulator = buffer.as<float>(), .addend = zero.as<float>(), .count = 33},
              *device.stream);
          device.synchronize();
        }
      }
      group.comm(rank).all_reduce_sum(buffer.as<float>(), 33, *device.stream);
      EXPECT_EQ(device.download(buffer), std::vector<float>(33, 1.0f + kRounds));
    });
  }
}

TEST(ThreadCommunicator, AbortWakesTheBlockedRanks) {
  for (const auto& options : modes()) {
    Group group(3, options);
    group.run([&](int rank) {
      if (rank == 2) {
        group.comm(rank).abort(absl::InternalError("rank 2 failed"));
        return;
      }
      Buffer buffer = group.device(rank).upload(std::vector<float>(4, 1.0f));
      for (int i = 0; i < 3; ++i) {
        group.comm(rank).all_reduce_sum(buffer.as<float>(), 4, *group.device(rank).stream);
      }
      EXPECT_EQ(group.device(rank).download(buffer), std::vector<float>(4, 1.0f));
      EXPECT_EQ(group.comm(rank).status(), absl::InternalError("rank 2 failed"));
    });
    group.comm(0).abort(absl::UnknownError("later"));
    EXPECT_EQ(group.comm(1).status(), absl::InternalError("rank 2 failed"));
  }
}

// Buffers go away as soon as their rank returns: a rank that left the shared section early would
// let another one read memory that is gone (a fault; found by ASan and by the guard pages).
TEST(ThreadCommunicator, AbortInMidCollectiveLeavesNobodyInForeignBuffers) {
  for (int round = 0; round < 50; ++round) {
    Group group(4, device::test_options());
    group.run([&](int rank) {
      for (int i = 0; i < 5; ++i) {
        Buffer buffer = group.device(rank).upload(std::vector<float>(20000, 1.0f));
        group.comm(rank).all_reduce_sum(buffer.as<float>(), 20000, *group.device(rank).stream);
        if (rank == 3 && i == round % 5) group.comm(rank).abort(absl::CancelledError("stop"));
      }
    });
    EXPECT_EQ(group.comm(0).status(), absl::CancelledError("stop"));
  }
}

TEST(SoloCommunicator, SumIsTheBufferAndGatherCopies) {
  TestDevice device;
  auto solo = make_solo_communicator(device.device.get());
  EXPECT_EQ(solo->rank(), 0);
  EXPECT_EQ(solo->size(), 1);
  const auto values = device::random_floats(12, 1);
  Buffer in = device.upload(values);
  Buffer out = device.floats(12);
  solo->all_reduce_sum(in.as<float>(), 12, *device.stream);
  solo->all_gather_columns(in.as<float>(), out.as<float>(), 3, 4, *device.stream);
  EXPECT_EQ(device.download(in), values);
  EXPECT_EQ(device.download(out), values);
  solo->abort(absl::CancelledError("stop"));
  EXPECT_EQ(solo->status(), absl::CancelledError("stop"));
}

}  // namespace
}  // namespace hisparse::comm
