#include "app/bench_kv.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/float_formats.h"

namespace hisparse::app {
namespace {

constexpr std::int32_t kHeadDim = 20;  // not a multiple of what one draw gives

struct Rows {
  std::vector<std::byte> keys, values;
};

// `wanted` with these tokens.
Rows rows_of(std::uint64_t seed, engine::KvRows wanted, std::vector<base::TokenId> tokens) {
  const std::size_t bytes = tokens.size() * static_cast<std::size_t>(wanted.kv_heads) * kHeadDim *
                            static_cast<std::size_t>(base::block_shape(wanted.dtype).bytes);
  Rows rows = {.keys = std::vector<std::byte>(bytes), .values = std::vector<std::byte>(bytes)};
  wanted.tokens = tokens;
  wanted.head_dim = kHeadDim;
  wanted.keys = rows.keys;
  wanted.values = rows.values;
  BenchKv(seed).fill(wanted);
  return rows;
}

engine::KvRows shape(std::int32_t layer, std::int64_t first, base::DType dtype) {
  engine::KvRows rows;
  rows.layer = layer;
  rows.first = first;
  rows.kv_heads = 2;
  rows.dtype = dtype;
  return rows;
}

TEST(BenchKv, ValuesAreEvenAndTheSameInBothTypes) {
  const Rows f32 = rows_of(1, shape(3, 100, base::DType::kF32), std::vector<base::TokenId>(50, 7));
  const Rows bf16 =
      rows_of(1, shape(3, 100, base::DType::kBF16), std::vector<base::TokenId>(50, 7));
  double sum = 0.0, squares = 0.0;
  const std::size_t count = f32.keys.size() / sizeof(float);
  for (std::size_t i = 0; i < count; ++i) {
    float value;
    base::bf16 rounded;
    std::memcpy(&value, f32.keys.data() + i * sizeof(value), sizeof(value));
    std::memcpy(&rounded, bf16.keys.data() + i * sizeof(rounded), sizeof(rounded));
    EXPECT_EQ(value, base::to_float(rounded));
    EXPECT_TRUE(value >= -1.0f && value < 1.0f);
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / static_cast<double>(count), 0.0, 0.05);
  EXPECT_NEAR(squares / static_cast<double>(count), 1.0 / 3.0, 0.03);
}

TEST(BenchKv, ARowFollowsFromItsTokenPlaceAndHeadAlone) {
  const engine::KvRows whole = shape(1, 40, base::DType::kBF16);
  const Rows rows = rows_of(5, whole, {1, 2, 3, 4});
  const std::size_t row = rows.keys.size() / 4, head = row / 2;
  const auto part = [](const std::vector<std::byte>& bytes, std::size_t at, std::size_t size) {
    return std::vector<std::byte>(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                                  bytes.begin() + static_cast<std::ptrdiff_t>(at + size));
  };
  // Other rows of the call, and a rank with one of the heads.
  engine::KvRows alone = shape(1, 42, base::DType::kBF16);
  EXPECT_EQ(rows_of(5, alone, {3}).keys, part(rows.keys, 2 * row, row));
  alone.first_kv_head = 1;
  alone.kv_heads = 1;
  EXPECT_EQ(rows_of(5, alone, {3}).values, part(rows.values, 2 * row + head, head));
  // Everything else makes a difference.
  EXPECT_NE(rows.keys, rows.values);
  EXPECT_NE(part(rows.keys, 0, head), part(rows.keys, head, head));
  EXPECT_NE(rows_of(6, whole, {1, 2, 3, 4}).keys, rows.keys);
  EXPECT_NE(rows_of(5, shape(2, 40, base::DType::kBF16), {1, 2, 3, 4}).keys, rows.keys);
  EXPECT_NE(rows_of(5, shape(1, 41, base::DType::kBF16), {1, 2, 3, 4}).keys, rows.keys);
  EXPECT_NE(rows_of(5, whole, {1, 2, 3, 9}).keys, rows.keys);
}

}  // namespace
}  // namespace hisparse::app
