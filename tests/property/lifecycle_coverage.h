// What the random walk over the LifecycleController has met.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

namespace hisparse::tests {

// What the random walk has met: a walk that never evicts or spills would prove nothing.
struct Coverage {
  std::int64_t hits = 0;
  std::int64_t dropped = 0;
  std::int64_t deduplicated = 0;
  std::int64_t preempted = 0;
  std::int64_t later = 0;
  std::int64_t never = 0;
  std::int64_t down = 0;
  std::int64_t up = 0;
  std::int64_t failed = 0;
  std::int64_t lost = 0;
  std::int64_t adopted = 0;
  std::int64_t replans = 0;
  std::int64_t unobserved = 0;
  std::int64_t exchanged = 0;

  void print() const {
    for (const auto& [what, count] : named()) {
      std::printf("%s %lld  ", what, static_cast<long long>(count));
    }
    std::printf("\n");
  }
  void expect_met() const {
    for (const auto& [what, count] : named()) EXPECT_GT(count, 100) << what;
  }

 private:
  std::vector<std::pair<const char*, std::int64_t>> named() const {
    return {{"tokens hit", hits},
            {"pages dropped", dropped},
            {"deduplicated", deduplicated},
            {"preempted", preempted},
            {"put off", later},
            {"refused", never},
            {"moved down", down},
            {"moved up", up},
            {"transfers failed", failed},
            {"pages lost", lost},
            {"adopted", adopted},
            {"re-plans", replans},
            {"observations lost", unobserved},
            {"pages exchanged", exchanged}};
  }
};

}  // namespace hisparse::tests
