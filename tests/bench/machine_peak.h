// What the machine can do at the most, measured in the run that compares kernels with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/thread_pool.h"

namespace hisparse::bench {

// kRead: bytes from DRAM. The others count operations, a product and its sum as two, over registers
// alone. kBF16 is at least kF32, which it equals where there is no bf16 dot instruction; kInt4 is
// at least kInt8.
enum class Peak : std::uint8_t { kRead, kF32, kBF16, kInt8, kInt4 };
inline constexpr int kPeaks = 5;

// Per second, over some passes.
struct Rate {
  double best = 0.0;
  double median = 0.0;
};

struct PeakRow {
  Peak peak = Peak::kRead;
  std::size_t loop = 0;  // index of what measured it
  int threads = 0;
  std::string instructions;
  Rate rate;
};

// Owns 512 MiB to read from, until it is destroyed. Its thread only, while the pool is idle.
class MachinePeak final {
 public:
  // Measures all kinds with 1, 2, 4 ... threads and with all of the pool, for some seconds.
  // Of `passes` passes of a few milliseconds the best one counts.
  static constexpr int kPasses = 128;
  MachinePeak(base::ThreadPool& pool, int passes);
  ~MachinePeak();

  // Measures one kind again with all threads, for about 100 ms.
  void refresh(Peak peak);

  // The best of three passes of the kind's fastest loop with all threads, some milliseconds: what
  // the machine does now.
  double now(Peak peak);

  // Reads `bytes` (a multiple of 4096) at `from`, 64-byte aligned, by the loop that reads fastest.
  // Returns something that depends on all of them. Any thread.
  std::int64_t read(const std::byte* from, std::int64_t bytes) const;

  // Bytes or operations a second with all threads: the most of all that was measured so far.
  double best(Peak peak) const;
  void print(std::ostream& out) const;

 private:
  class HugeBuffer;
  struct Loop;
  Rate rate_of(int passes, const Loop& loop, base::ThreadPool& pool) const;
  double rate_of_pass(int pass, const Loop& loop, base::ThreadPool& pool) const;
  void measure(base::ThreadPool& pool);
  std::size_t best_row(Peak peak) const;

  base::ThreadPool& pool_;
  const int passes_;
  std::unique_ptr<HugeBuffer> buffer_;
  std::vector<Loop> loops_;
  int next_pass_ = 0;  // which part of the buffer it reads
  std::vector<PeakRow> rows_;
};

}  // namespace hisparse::bench
