#include "app/bench_kv.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "base/float_formats.h"
#include "base/philox.h"

namespace hisparse::app {
namespace {

constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15u;

// One draw gives eight values of 16 bits.
constexpr std::size_t kDrawn = 8;

// From the upper bits, so that the values are exact in bf16.
std::array<float, kDrawn> draw(std::uint64_t key, std::uint64_t counter) {
  constexpr int kHalfBits = 16, kDropped = 8;
  constexpr float kUnit = 1.0f / 128.0f;
  std::array<float, kDrawn> values;
  std::size_t i = 0;
  for (const std::uint32_t word : base::philox4x32(key, counter)) {
    for (const std::uint32_t half : {word >> kHalfBits, word & 0xFFFFu}) {
      values[i++] = static_cast<float>(half >> kDropped) * kUnit - 1.0f;
    }
  }
  return values;
}

void fill_head(std::uint64_t key, std::int32_t head_dim, base::DType dtype, std::byte* out) {
  const auto size = static_cast<std::size_t>(base::block_shape(dtype).bytes);
  for (std::size_t i = 0; i < static_cast<std::size_t>(head_dim); i += kDrawn) {
    const std::array<float, kDrawn> values = draw(key, i);
    for (std::size_t j = i; j < std::min(i + kDrawn, static_cast<std::size_t>(head_dim)); ++j) {
      const float value = values[j - i];
      if (dtype == base::DType::kBF16) {
        const base::bf16 rounded = base::to_bf16(value);
        std::memcpy(out + j * size, &rounded, size);
      } else {
        std::memcpy(out + j * size, &value, size);
      }
    }
  }
}

}  // namespace

void BenchKv::fill(const engine::KvRows& rows) {
  HS_CHECK(rows.dtype == base::DType::kBF16 || rows.dtype == base::DType::kF32);
  const std::int64_t head_bytes = std::int64_t{rows.head_dim} * base::block_shape(rows.dtype).bytes;
  std::int64_t at = 0;
  for (std::size_t row = 0; row < rows.tokens.size(); ++row) {
    const std::uint64_t position = static_cast<std::uint64_t>(rows.first) + row;
    for (std::int32_t head = 0; head < rows.kv_heads; ++head, at += head_bytes) {
      std::uint64_t key = seed_;
      for (const std::uint64_t part : {static_cast<std::uint64_t>(rows.tokens[row]), position,
                                       static_cast<std::uint64_t>(rows.layer),
                                       static_cast<std::uint64_t>(rows.first_kv_head + head)}) {
        key = (key ^ part) * kGoldenRatio + 1;
      }
      fill_head(key, rows.head_dim, rows.dtype, rows.keys.data() + at);
      fill_head(~key, rows.head_dim, rows.dtype, rows.values.data() + at);
    }
  }
}

}  // namespace hisparse::app
