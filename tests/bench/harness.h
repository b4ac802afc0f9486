// What the benchmark programs share: the command line, the device, and how times become shares of
// the machine's peak.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/cpu_device.h"
#include "tests/bench/core_distance.h"
#include "tests/bench/machine_peak.h"

namespace hisparse::bench {

// Owns the pool and the device of a program. The main thread only.
struct Machine {
  Machine(int threads, int peak_passes);

  device::Buffer allocate(std::int64_t bytes) const;
  device::Buffer floats(std::int64_t count) const;  // random, in [-1, 1)
  template <typename T>
  device::Buffer upload(const std::vector<T>& values) const {
    device::Buffer buffer = allocate(static_cast<std::int64_t>(values.size() * sizeof(T)));
    device->copy_to_device(std::as_bytes(std::span(values)), buffer.as<std::byte>(), *stream);
    synchronize();
    return buffer;
  }
  void synchronize() const;

  base::ThreadPool pool;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Stream> stream;
  MachinePeak peak;
};

// `main` of a program: takes --threads=N (default: all cores), --peak-passes=N (fewer, where the
// figures do not matter) and Google Benchmark's own flags, measures the peaks, prints them, calls
// `register_benchmarks` and runs what the filter leaves. Prints the peaks again if they grew during
// the run, since the first `of_best%` are then too high.
using Registration = void (*)(Machine& machine);
int run_benchmarks(int argc, char** argv, Registration register_benchmarks);

// The exit status of a program that lacks its model file: CTest calls it skipped.
inline constexpr int kSkipped = 77;

// What one iteration does, and which peak it is compared with.
struct Work {
  double amount = 0.0;  // bytes or operations
  Peak peak = Peak::kRead;
};

// What was measured: the seconds of each iteration, and for each turn of some of them their share
// of the peak, which is the mean of those right before and right after the turn, and the distance
// of the cores (core_distance.h).
struct Times {
  std::vector<double> seconds;
  std::vector<double> shares;
  std::vector<double> line_nanoseconds;
};

// Sets the counters: the rate of the median iteration, `share%` of the median turn, `of_best%`,
// that rate as a part of the best peak so far, and `line_ns` of the median turn.
void report(benchmark::State& state, Machine& machine, const Work& work, Times times);

template <typename Body>
double seconds_of(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Iterations of `body` in turn with the peak, some milliseconds each.
template <typename Body>
void measure(benchmark::State& state, Machine& machine, const Work& work, const Body& body) {
  constexpr double kSecondsOfTurn = 10e-3;
  machine.peak.refresh(work.peak);
  body();  // scratch grows, pages are touched
  Times times;
  double before = machine.peak.now(work.peak);
  double turn = 0.0;
  int iterations = 0;
  const auto end_turn = [&] {
    const double after = machine.peak.now(work.peak);
    times.shares.push_back(work.amount * iterations / turn / ((before + after) / 2.0));
    times.line_nanoseconds.push_back(line_nanoseconds(machine.pool));
    before = after;
    turn = 0.0;
    iterations = 0;
  };
  for (auto _ : state) {
    times.seconds.push_back(seconds_of(body));
    turn += times.seconds.back();
    ++iterations;
    if (turn < kSecondsOfTurn) continue;
    state.PauseTiming();
    end_turn();
    state.ResumeTiming();
  }
  if (iterations > 0) end_turn();
  report(state, machine, work, std::move(times));
}

double median(std::vector<double> values);

// Inputs are costly and Google Benchmark calls a case several times: keeps those of the latest one.
template <typename T>
class Kept final {
 public:
  template <typename Make>
  T& get(const std::string& name, const Make& make) {
    if (name != name_) {
      value_.reset();  // first, or both would be in memory
      value_ = make();
      name_ = name;
    }
    return *value_;
  }

 private:
  std::string name_;
  std::unique_ptr<T> value_;
};

// Registers `body` with what every case here has: wall time, milliseconds.
template <typename Body>
void add_case(const std::string& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(body))
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace hisparse::bench
