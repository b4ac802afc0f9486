// Compiled for x86-64-v3 (CMakeLists.txt), like the kernels that it is compared with.
#include "tests/bench/free_order.h"

#include <cstring>

namespace hisparse::bench {
namespace {

using device::cpu::Element;
using device::cpu::kPanelColumns;

typedef float F8 __attribute__((vector_size(32)));
typedef std::uint32_t U8 __attribute__((vector_size(32)));
constexpr int kVectorBytes = 32;
constexpr int kLanes = 8;
constexpr int kVectors = kPanelColumns / kLanes;
constexpr int kWays = 2;  // of k

// w[way][vector] = the panel at k and k + 1.
template <Element kElement>
inline void load_pair(F8 (&w)[kWays][kVectors], const char* panel, std::int64_t k) {
  constexpr std::int64_t kColumnBytes = kElement == Element::kF32 ? 4 : 2;
  const char* from = panel + k * kPanelColumns * kColumnBytes;
  for (int v = 0; v < kVectors; ++v) {
    if constexpr (kElement == Element::kF32) {
      for (int way = 0; way < kWays; ++way) {
        std::memcpy(&w[way][v], from + (way * kVectors + v) * kVectorBytes, kVectorBytes);
      }
    } else {
      U8 pairs;
      std::memcpy(&pairs, from + v * kVectorBytes, kVectorBytes);
      const U8 low = pairs << 16;
      const U8 high = pairs & 0xFFFF0000u;
      std::memcpy(&w[0][v], &low, kVectorBytes);
      std::memcpy(&w[1][v], &high, kVectorBytes);
    }
  }
}

template <Element kElement>
void multiply(const char* panel, const float* row, float* out, std::int64_t k) {
  F8 sums[kWays][kVectors] = {};
  F8 w[kWays][kVectors];
  for (std::int64_t i = 0; i < k; i += kWays) {
    load_pair<kElement>(w, panel, i);
    for (int way = 0; way < kWays; ++way) {
      for (int v = 0; v < kVectors; ++v) sums[way][v] += row[i + way] * w[way][v];
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const F8 sum = sums[0][v] + sums[1][v];
    std::memcpy(out + v * kLanes, &sum, kVectorBytes);
  }
}

}  // namespace

void multiply_row_in_free_order(Element element, const void* panel, const float* row, float* out,
                                std::int64_t k) {
  if (element == Element::kF32) {
    multiply<Element::kF32>(static_cast<const char*>(panel), row, out, k);
  } else {
    multiply<Element::kBF16>(static_cast<const char*>(panel), row, out, k);
  }
}

}  // namespace hisparse::bench
