#include "tests/bench/machine_peak.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <iomanip>
#include <limits>

#include "base/check.h"
#include "tests/bench/peak_loops.h"

namespace hisparse::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGiga = 1e9;
constexpr std::int64_t kHugePageBytes = std::int64_t{2} << 20;
constexpr std::int64_t kReadBytes = std::int64_t{512} << 20;
// A pass lasts a few milliseconds at the most, and there are many: one of them finds all cores free
// even when others use the machine.
constexpr std::int64_t kReadBytesOfPass = std::int64_t{64} << 20;
constexpr double kTaskSeconds = 0.1e-3;
constexpr int kTasksPerThread = 10;
constexpr std::int64_t kFirstRounds = 256;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Keeps the loops' results alive.
std::atomic<std::int64_t> sink{0};

std::int64_t rounds_of_task(const PeakLoop& loop) {
  constexpr int kTries = 3;
  for (std::int64_t rounds = kFirstRounds;; rounds *= 2) {
    double seconds = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kTries; ++i) {
      const auto start = Clock::now();
      sink += loop.run(rounds);
      seconds = std::min(seconds, seconds_since(start));
    }
    if (seconds >= kTaskSeconds) return rounds;
  }
}

using ReadLoop = std::int64_t (*)(const void* from, std::int64_t bytes);

std::vector<const PeakLoops*> levels_of_this_machine() {
  std::vector<const PeakLoops*> levels = {&peak_loops_v2()};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")) {
    levels = {&peak_loops_v3()};
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vnni")) {
    levels.push_back(&peak_loops_v4());
  }
  return levels;
}

// Instructions for f32 do for bf16, and those for int8 do for int4.
bool serves(Peak measured, Peak wanted) {
  return measured == wanted || (wanted == Peak::kBF16 && measured == Peak::kF32) ||
         (wanted == Peak::kInt4 && measured == Peak::kInt8);
}

const char* name_of(Peak peak) {
  switch (peak) {
    case Peak::kRead:
      return "read GB/s";
    case Peak::kF32:
      return "f32 GFLOP/s";
    case Peak::kBF16:
      return "bf16 GFLOP/s";
    case Peak::kInt8:
      return "int8 GOP/s";
    case Peak::kInt4:
      return "int4 GOP/s";
  }
  return "unknown";
}

}  // namespace

// Memory in 2 MiB pages where the system gives them.
class MachinePeak::HugeBuffer final {
 public:
  HugeBuffer() {
    base_ = mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HS_CHECK(base_ != MAP_FAILED);
    const auto address = reinterpret_cast<std::uintptr_t>(base_);
    data_ = static_cast<std::byte*>(base_) + (kHugePageBytes - address % kHugePageBytes);
    (void)madvise(data_, kReadBytes, MADV_HUGEPAGE);
    std::memset(data_, 1, kReadBytes);  // untouched pages would all be the one zero page
  }
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;
  ~HugeBuffer() { HS_CHECK(munmap(base_, kMapped) == 0); }

  const std::byte* data() const { return data_; }

 private:
  static constexpr std::size_t kMapped = kReadBytes + kHugePageBytes;
  void* base_ = nullptr;
  std::byte* data_ = nullptr;
};

struct MachinePeak::Loop {
  Peak peak = Peak::kRead;
  std::string name;
  ReadLoop read = nullptr;  // kRead
  PeakLoop operations;      // the others
  std::int64_t rounds = 0;  // of a task of those
};

MachinePeak::MachinePeak(base::ThreadPool& pool, int passes)
    : pool_(pool), passes_(passes), buffer_(std::make_unique<HugeBuffer>()) {
  for (const PeakLoops* level : levels_of_this_machine()) {
    const std::string prefix = std::string(level->level) + ": ";
    const auto add = [&](Peak peak, const PeakLoop& loop) {
      loops_.push_back({peak, prefix + loop.instructions, nullptr, loop, rounds_of_task(loop)});
    };
    loops_.push_back({Peak::kRead, prefix + "one stream", level->read_one_stream, {}, 0});
    loops_.push_back({Peak::kRead, prefix + "four streams", level->read_four_streams, {}, 0});
    add(Peak::kF32, level->f32);
    if (level->bf16.run != nullptr && __builtin_cpu_supports("avx512bf16")) {
      add(Peak::kBF16, level->bf16);
    }
    add(Peak::kInt8, level->int8);
    add(Peak::kInt4, level->int4);
  }
  for (int threads = 1; threads < pool.threads(); threads *= 2) {
    base::ThreadPool some(threads);
    measure(some);
  }
  measure(pool);
}

MachinePeak::~MachinePeak() = default;

double MachinePeak::rate_of_pass(int pass, const Loop& loop, base::ThreadPool& pool) const {
  const auto start = Clock::now();
  if (loop.read != nullptr) {
    const std::byte* from = buffer_->data() + pass * kReadBytesOfPass % kReadBytes;
    pool.parallel_for(kReadBytesOfPass / kHugePageBytes, [&](std::int64_t page) {
      sink += loop.read(from + page * kHugePageBytes, kHugePageBytes);
    });
    return static_cast<double>(kReadBytesOfPass) / seconds_since(start);
  }
  const std::int64_t tasks = std::int64_t{kTasksPerThread} * pool.threads();
  pool.parallel_for(tasks, [&](std::int64_t) { sink += loop.operations.run(loop.rounds); });
  return loop.operations.operations * static_cast<double>(loop.rounds * tasks) /
         seconds_since(start);
}

Rate MachinePeak::rate_of(int passes, const Loop& loop, base::ThreadPool& pool) const {
  (void)rate_of_pass(0, loop, pool);
  std::vector<double> rates;
  for (int i = 1; i <= passes; ++i) rates.push_back(rate_of_pass(i, loop, pool));
  std::sort(rates.begin(), rates.end());
  return {.best = rates.back(), .median = rates[rates.size() / 2]};
}

void MachinePeak::measure(base::ThreadPool& pool) {
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    const Loop& loop = loops_[i];
    rows_.push_back({loop.peak, i, pool.threads(), loop.name, rate_of(passes_, loop, pool)});
  }
}

void MachinePeak::refresh(Peak peak) {
  for (PeakRow& row : rows_) {
    if (!serves(row.peak, peak) || row.threads != pool_.threads()) continue;
    const Rate rate = rate_of((passes_ + 1) / 2, loops_[row.loop], pool_);
    row.rate.best = std::max(row.rate.best, rate.best);
  }
}

double MachinePeak::now(Peak peak) {
  constexpr int kPassesNow = 3;  // the first one may have to wake the threads
  PeakRow& row = rows_[best_row(peak)];
  double best = 0.0;
  for (int i = 0; i < kPassesNow; ++i) {
    best = std::max(best, rate_of_pass(next_pass_++, loops_[row.loop], pool_));
  }
  row.rate.best = std::max(row.rate.best, best);
  return best;
}

std::size_t MachinePeak::best_row(Peak peak) const {
  std::size_t best = rows_.size();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (!serves(rows_[i].peak, peak) || rows_[i].threads != pool_.threads()) continue;
    if (best == rows_.size() || rows_[i].rate.best > rows_[best].rate.best) best = i;
  }
  HS_CHECK(best < rows_.size());
  return best;
}

std::int64_t MachinePeak::read(const std::byte* from, std::int64_t bytes) const {
  return loops_[rows_[best_row(Peak::kRead)].loop].read(from, bytes);
}

double MachinePeak::best(Peak peak) const { return rows_[best_row(peak)].rate.best; }

void MachinePeak::print(std::ostream& out) const {
  out << std::left << std::setw(14) << "peak" << std::right << std::setw(8) << "threads"
      << std::setw(10) << "best" << std::setw(10) << "median"
      << "  how\n"
      << std::fixed << std::setprecision(1);
  for (const PeakRow& row : rows_) {
    out << std::left << std::setw(14) << name_of(row.peak) << std::right << std::setw(8)
        << row.threads << std::setw(10) << row.rate.best / kGiga << std::setw(10)
        << row.rate.median / kGiga << "  " << row.instructions << '\n';
  }
  out << std::defaultfloat << std::flush;
}

}  // namespace hisparse::bench
