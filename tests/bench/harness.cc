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

struct Options {
  int threads = base::available_cores();
  int peak_passes = MachinePeak::kPasses;
};

// `argument` is `flag` and a number above 0, which goes to `value`. Nothing when it is another
// flag, false when the number is none.
std::optional<bool> take_number(std::string_view argument, std::string_view flag, int& value) {
  if (!argument.starts_with(flag)) return {};
  argument.remove_prefix(flag.size());
  const char* const end = argument.data() + argument.size();
  const auto [parsed, error] = std::from_chars(argument.data(), end, value);
  return error == std::errc() && parsed == end && value > 0;
}

// Takes our own flags out of the arguments; nothing when one of them is wrong.
std::optional<Options> take_options(int& argc, char** argv) {
  Options options;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    std::optional<bool> taken = take_number(argv[i], "--threads=", options.threads);
    if (!taken) taken = take_number(argv[i], "--peak-passes=", options.peak_passes);
    if (!taken) argv[kept++] = argv[i];
    if (taken && !*taken) return {};
  }
  argc = kept;
  return options;
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

Machine::Machine(int threads, int peak_passes) : pool(threads), peak(pool, peak_passes) {
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
  const std::optional<Options> options = take_options(argc, argv);
  if (!options) {
    std::cerr << "--threads and --peak-passes need a number above 0\n";
    return 1;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  Machine machine(options->threads, options->peak_passes);
  std::cout << "kernels: " << machine.device->isa_level() << ", " << options->threads
            << " threads\n";
  machine.peak.print(std::cout);
  const std::array<double, kPeaks> before = best_of_all(machine);
  register_benchmarks(machine);
  const std::size_t matched = benchmark::RunSpecifiedBenchmarks();
  benchmark::ClearRegisteredBenchmarks();  // they hold device memory
  benchmark::Shutdown();
  print_growth(machine, before);
  return matched > 0 ? 0 : 1;  // a filter that no case matches is a mistake
}

double median(std::vector<double> values) {
  HS_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void report(benchmark::State& state, Machine& machine, const Work& work, Times times) {
  if (times.seconds.empty()) return;  // a case that was skipped
  const double rate = work.amount / median(std::move(times.seconds));
  state.counters[unit_of(work.peak)] = rate / kGiga;
  state.counters["line_ns"] = median(std::move(times.line_nanoseconds));
  state.counters["share%"] = kPercent * median(std::move(times.shares));
  state.counters["of_best%"] = kPercent * rate / machine.peak.best(work.peak);
}

}  // namespace hisparse::bench
