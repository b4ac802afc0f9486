#include "tests/bench/core_distance.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

#include "base/cache_line.h"

namespace hisparse::bench {
namespace {

constexpr int kRounds = 4;
constexpr int kExchanges = 250;

struct alignas(base::kCacheLine) Line {
  std::atomic<int> value{0};

  void wait_for(int wanted) const {
    while (value.load(std::memory_order_acquire) != wanted) {
    }
  }
};

}  // namespace

double line_nanoseconds(base::ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  if (pool.threads() == 1) return 0.0;
  double least = std::numeric_limits<double>::infinity();
  Line line;
  // Two calls that wait for each other are on two threads. One writes odd numbers, one even ones.
  // The first call is nothing: it may run before all threads are told.
  pool.parallel_for(3, [&](std::int64_t call) {
    if (call == 0) return;
    const bool odd = call == 1;
    int next = 0;
    for (int round = 0; round < kRounds; ++round) {
      const auto start = Clock::now();
      for (int i = 0; i < kExchanges; ++i, next += 2) {
        if (odd) {
          line.value.store(next + 1, std::memory_order_release);
          line.wait_for(next + 2);
        } else {
          line.wait_for(next + 1);
          line.value.store(next + 2, std::memory_order_release);
        }
      }
      const std::chrono::duration<double, std::nano> passed = Clock::now() - start;
      if (odd) least = std::min(least, passed.count() / (2 * kExchanges));
    }
  });
  return least;
}

}  // namespace hisparse::bench
