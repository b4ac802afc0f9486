// The peak loops for AVX-512 with VNNI and bf16; the flag is set in CMakeLists.txt.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "tests/bench/peak_loops.h"

namespace hisparse::bench {
namespace {

#include "tests/bench/peak_loops.inc.h"

std::int64_t run_bf16(std::int64_t rounds) {
  // Pairs of bf16 1.0.
  const __m512i ones = _mm512_set1_epi32(0x3F803F80);
  __m512bh x;
  std::memcpy(&x, &ones, sizeof(x));
  __m512 sums[kChains];
  for (int i = 0; i < kChains; ++i) {
    sums[i] = _mm512_set1_ps(static_cast<float>(i));
    opaque(sums[i]);
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], x, x);
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return first_word(sums[0]);
}
constexpr double kBF16Operations = double{kChains} * kFloatLanes * 2 * kOperationsOfProduct;

constexpr PeakLoops kLoops = {
    .level = "AVX-512",
    .f32 = {run_f32, kF32Operations, "vfmadd, 512 bits"},
    .int8 = {run_int8, kInt8Operations, kInt8Instructions},
    .int4 = {run_int4, kInt4Operations, kInt4Instructions},
    .bf16 = {run_bf16, kBF16Operations, "vdpbf16ps"},
    .read_one_stream = run_read<1>,
    .read_four_streams = run_read<4>,
};

}  // namespace

const PeakLoops& peak_loops_v4() { return kLoops; }

}  // namespace hisparse::bench
