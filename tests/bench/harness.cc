#include "tests/bench/harness.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iostream>
#include <optional>
#include <random>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/machine.h"

namespace hisparse::bench {
namespace {

constexpr double kGiga = 1e9;
constexpr double kPercent = 100.0;
// A peak that grows by more than this during the run is told.
constexpr double kGrowth = 1.03;

// Takes --threads=N out of the arguments; nothing when its value is no number above 0.
std::optional<int> take_threads(int& argc, char** argv) {
  constexpr std::string_view kFlag = "--threads=";
  int threads = base::available_cores();
  int kept = 0;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (i == 0 || !argument.starts_with(kFlag)) {
      argv[kept++] = argv[i];
      continue;
    }
    const std::string_view value = argument.substr(kFlag.size());
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), threads);
    if (error != std::errc() || end != value.data() + value.size() || threads < 1) return {};
  }
  argc = kept;
  return threads;
}

const char* unit_of(Peak peak) {
  if (peak == Peak::kRead) return "GB/s";
  return peak == Peak::kF32 || peak == Peak::kBF16 ? "GFLOP/s" : "GOP/s";
}

std::array<double, kPeaks> best_of_all(const Machine& machine) {
  std::array<double, kPeaks> best{};
  for (int i = 0; i < kPeaks; ++i) best[i] = machine.peak.best(static_cast<Peak>(i));
  return best;
}

void print_growth(const Machine& machine, const std::array<double, kPeaks>& before) {
  const std::array<double, kPeaks> after = best_of_all(machine);
  for (int i = 0; i < kPeaks; ++i) {
    if (after[i] > kGrowth * before[i]) {
      std::cout << "The machine was not itself at the start; the peaks in the end:\n";
      machine.peak.print(std::cout);
      return;
    }
  }
}

}  // namespace

Machine::Machine(int threads) : pool(threads), peak(pool) {
  auto made = device::make_cpu_device(pool, {});
  HS_CHECK(made.ok());
  device = std::move(*made);
  stream = device->create_stream();
}

device::Buffer Machine::allocate(std::int64_t bytes) const {
  auto buffer = device->allocate(static_cast<std::size_t>(bytes), base::MemoryOwner::kActivations);
  HS_CHECK(buffer.ok());
  return std::move(*buffer);
}

device::Buffer Machine::floats(std::int64_t count) const {
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = uniform(random);
  return upload(values);
}

void Machine::synchronize() const { HS_CHECK(device->synchronize(device->record(*stream)).ok()); }

int run_benchmarks(int argc, char** argv, Registration register_benchmarks) {
  const std::optional<int> threads = take_threads(argc, argv);
  if (!threads) {
    std::cerr << "--threads needs a number above 0\n";
    return 1;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  Machine machine(*threads);
  std::cout << "kernels: " << machine.device->isa_level() << ", " << *threads << " threads\n";
  machine.peak.print(std::cout);
  const std::array<double, kPeaks> before = best_of_all(machine);
  register_benchmarks(machine);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::ClearRegisteredBenchmarks();  // they hold device memory
  benchmark::Shutdown();
  print_growth(machine, before);
  return 0;
}

double median(std::vector<double> values) {
  HS_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void report(benchmark::State& state, Machine& machine, const Work& work,
            std::vector<double> seconds) {
  if (seconds.empty()) return;  // a case that was skipped
  const double best = *std::min_element(seconds.begin(), seconds.end());
  const double rate = work.amount / median(std::move(seconds));
  const double peak = machine.peak.best(work.peak);
  state.counters[unit_of(work.peak)] = rate / kGiga;
  state.counters["share%"] = kPercent * rate / peak;
  state.counters["best%"] = kPercent * work.amount / best / peak;
}

}  // namespace hisparse::bench
