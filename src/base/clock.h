// Time as an explicit input, so that the engine runs under a virtual clock in the simulator.
#pragma once

#include <chrono>
#include <cstdint>

namespace hisparse::base {

// Nanoseconds since an arbitrary start; never goes backwards.
using Nanoseconds = std::int64_t;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanoseconds now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  Nanoseconds now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

// Moves only when told. Not thread-safe: for single-threaded tests.
class VirtualClock final : public Clock {
 public:
  Nanoseconds now() const override { return now_; }
  void advance(Nanoseconds by) { now_ += by; }

 private:
  Nanoseconds now_ = 0;
};

}  // namespace hisparse::base
