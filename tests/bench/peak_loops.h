// The loops that drive the machine to its peak, compiled once per instruction-set level like the
// kernels (device/cpu/kernels.h), and under the same rule: no inline function that other files
// share.
#pragma once

#include <cstdint>

namespace hisparse::bench {

// A loop over registers alone. `run(rounds)` returns something that depends on all of its work.
struct PeakLoop {
  std::int64_t (*run)(std::int64_t rounds) = nullptr;  // null: the level has no such instructions
  double operations = 0.0;                             // of one round; a product and its sum are 2
  const char* instructions = "";
};

struct PeakLoops {
  const char* level = "";
  PeakLoop f32;   // f32 products and sums
  PeakLoop int8;  // u8 * s8 summed in s32
  PeakLoop int4;  // values of 0 ... 15 times s8: sums may stay in s16 for some steps
  PeakLoop bf16;  // pairs of bf16 products summed in f32
  // Reads `bytes` (a multiple of 4096) from `from`, 64-byte aligned, in one, or in four streams.
  std::int64_t (*read_one_stream)(const void* from, std::int64_t bytes) = nullptr;
  std::int64_t (*read_four_streams)(const void* from, std::int64_t bytes) = nullptr;
};

const PeakLoops& peak_loops_v2();
const PeakLoops& peak_loops_v3();
// AVX-512 with VNNI; `bf16` needs AVX512_BF16 on top.
const PeakLoops& peak_loops_v4();

}  // namespace hisparse::bench
