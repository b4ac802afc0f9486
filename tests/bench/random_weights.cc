#include "tests/bench/random_weights.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <span>

#include "base/check.h"

namespace hisparse::bench {
namespace {

using base::DType;

constexpr std::int64_t kDistinctRows = 61;

// [kDistinctRows, k] floats.
std::vector<float> random_rows(std::int64_t k) {
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(static_cast<std::size_t>(kDistinctRows * k));
  for (float& value : values) value = uniform(random);
  return values;
}

// [kDistinctRows, k] in blocks: any values, with scales and minima between 2^-7 and 2^-6.
std::vector<std::byte> random_blocks(DType stored, std::int64_t k) {
  constexpr std::uint16_t kTwoToMinus7 = 0x2000;  // f16
  constexpr std::uint16_t kMantissa = 0x3ff;
  const base::BlockShape block = base::block_shape(stored);
  const std::size_t halves = stored == DType::kQ4_1 ? 2 : 1;
  std::mt19937 random(1);
  std::vector<std::byte> blocks(
      static_cast<std::size_t>(kDistinctRows * k / block.values * block.bytes));
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
  for (std::size_t at = 0; at < blocks.size(); at += static_cast<std::size_t>(block.bytes)) {
    for (std::size_t i = 0; i < halves; ++i) {
      const auto half = static_cast<std::uint16_t>(kTwoToMinus7 | (random() & kMantissa));
      std::memcpy(blocks.data() + at + i * sizeof(half), &half, sizeof(half));
    }
  }
  return blocks;
}

}  // namespace

std::unique_ptr<device::Weight> random_weight(const Machine& machine, const Matrix& matrix,
                                              const WeightKind& kind) {
  const base::BlockShape block = base::block_shape(kind.stored);
  const bool quantised = block.values > 1;
  const std::vector<float> rows = quantised ? std::vector<float>() : random_rows(matrix.k);
  const std::vector<std::byte> blocks =
      quantised ? random_blocks(kind.stored, matrix.k) : std::vector<std::byte>();
  const auto width = static_cast<std::size_t>(matrix.k);
  const std::size_t row_bytes =
      width / static_cast<std::size_t>(block.values) * static_cast<std::size_t>(block.bytes);
  auto weight = machine.device->prepare_weight(
      {.shape = {.rows = matrix.n, .cols = matrix.k, .stored = kind.stored},
       .read_row =
           [&](std::int64_t row, std::span<float> out) {
             const auto from = static_cast<std::size_t>(row % kDistinctRows) * width;
             std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(from), width, out.begin());
           },
       .read_blocks =
           [&](std::int64_t row) {
             return std::span(blocks).subspan(
                 static_cast<std::size_t>(row % kDistinctRows) * row_bytes, row_bytes);
           }},
      kind.compute);
  HS_CHECK(weight.ok());
  return std::move(*weight);
}

std::vector<std::unique_ptr<device::Weight>> weight_copies(const Machine& machine,
                                                           const Matrix& matrix,
                                                           const WeightKind& kind) {
  const std::int64_t bytes = weight_bytes(matrix, kind);
  const std::int64_t count = std::max<std::int64_t>(2, (kBeyondCaches + bytes - 1) / bytes);
  std::vector<std::unique_ptr<device::Weight>> copies;
  for (std::int64_t i = 0; i < count; ++i) copies.push_back(random_weight(machine, matrix, kind));
  return copies;
}

std::int64_t weight_bytes(const Matrix& matrix, const WeightKind& kind) {
  return device::cpu_weight_bytes({.rows = matrix.n, .cols = matrix.k, .stored = kind.stored},
                                  kind.compute);
}

}  // namespace hisparse::bench
