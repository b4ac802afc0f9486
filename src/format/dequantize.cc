#include "format/dequantize.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/float_formats.h"

namespace hisparse::format {
namespace {

static_assert(std::endian::native == std::endian::little, "stored values are read in place");

constexpr int kHalfBytes = 2;
constexpr int kNibblePairs = 16;  // a 4-bit block packs values j and j + 16 into byte j
constexpr int kQ4_0ZeroPoint = 8;
constexpr std::uint32_t kLowNibble = 0xf;
constexpr int kNibbleBits = 4;

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

void expand_f32(const std::byte* block, float* out) { *out = load<float>(block); }

void expand_f16(const std::byte* block, float* out) {
  *out = base::to_float(load<base::f16>(block));
}

void expand_bf16(const std::byte* block, float* out) {
  *out = base::to_float(load<base::bf16>(block));
}

void expand_q8_0(const std::byte* block, float* out) {
  const float scale = base::to_float(load<base::f16>(block));
  for (int i = 0; i < base::block_shape(base::DType::kQ8_0).values; ++i) {
    out[i] = scale * static_cast<float>(load<std::int8_t>(block + kHalfBytes + i));
  }
}

void expand_q4_0(const std::byte* block, float* out) {
  const float scale = base::to_float(load<base::f16>(block));
  for (int i = 0; i < kNibblePairs; ++i) {
    const auto pair = load<std::uint8_t>(block + kHalfBytes + i);
    out[i] = scale * static_cast<float>(static_cast<int>(pair & kLowNibble) - kQ4_0ZeroPoint);
    out[i + kNibblePairs] =
        scale * static_cast<float>(static_cast<int>(pair >> kNibbleBits) - kQ4_0ZeroPoint);
  }
}

void expand_q4_1(const std::byte* block, float* out) {
  const float scale = base::to_float(load<base::f16>(block));
  const float minimum = base::to_float(load<base::f16>(block + kHalfBytes));
  for (int i = 0; i < kNibblePairs; ++i) {
    const auto pair = load<std::uint8_t>(block + 2 * kHalfBytes + i);
    out[i] = scale * static_cast<float>(pair & kLowNibble) + minimum;
    out[i + kNibblePairs] = scale * static_cast<float>(pair >> kNibbleBits) + minimum;
  }
}

template <typename Expand>
void expand_blocks(base::BlockShape shape, std::span<const std::byte> blocks, std::span<float> out,
                   Expand expand) {
  const auto values = static_cast<std::size_t>(shape.values);
  const auto bytes = static_cast<std::size_t>(shape.bytes);
  HS_CHECK(out.size() % values == 0);
  const std::size_t count = out.size() / values;
  HS_CHECK(blocks.size() % bytes == 0 && blocks.size() / bytes == count);
  for (std::size_t i = 0; i < count; ++i) {
    expand(blocks.data() + i * bytes, out.data() + i * values);
  }
}

}  // namespace

void dequantize_row(base::DType dtype, std::span<const std::byte> blocks, std::span<float> out) {
  const base::BlockShape shape = base::block_shape(dtype);
  switch (dtype) {
    case base::DType::kF32:
      return expand_blocks(shape, blocks, out, expand_f32);
    case base::DType::kF16:
      return expand_blocks(shape, blocks, out, expand_f16);
    case base::DType::kBF16:
      return expand_blocks(shape, blocks, out, expand_bf16);
    case base::DType::kQ8_0:
      return expand_blocks(shape, blocks, out, expand_q8_0);
    case base::DType::kQ4_0:
      return expand_blocks(shape, blocks, out, expand_q4_0);
    case base::DType::kQ4_1:
      return expand_blocks(shape, blocks, out, expand_q4_1);
  }
}

}  // namespace hisparse::format
