// Slices of stored matrices as the device reads them, against the dequantised matrix.
#include "model/weight_map.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "format/dequantize.h"

namespace hisparse::model {
namespace {

using base::DType;

constexpr std::int64_t kRows = 24;
constexpr std::int64_t kColumns = 128;

struct Stored {
  format::TensorView view;
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [kRows, kColumns]
};

// Any bits, but for scales (and minima) that are usual numbers.
Stored random_stored(DType dtype) {
  const base::BlockShape block = base::block_shape(dtype);
  Stored stored;
  stored.bytes.resize(static_cast<std::size_t>(kRows * kColumns / block.values * block.bytes));
  std::mt19937 random(7);
  for (std::byte& byte : stored.bytes) byte = static_cast<std::byte>(random());
  for (std::size_t at = 0; at < stored.bytes.size(); at += static_cast<std::size_t>(block.bytes)) {
    for (int i = 0; i < (dtype == DType::kQ4_1 ? 2 : 1); ++i) {
      const auto half = static_cast<std::uint16_t>(0x2000 + random() % 0xfff);
      std::memcpy(stored.bytes.data() + at + 2 * i, &half, sizeof(half));
    }
  }
  stored.values.resize(kRows * kColumns);
  format::dequantize_row(dtype, stored.bytes, stored.values);
  stored.view = {.name = "m", .dtype = dtype, .shape = {kRows, kColumns}, .bytes = stored.bytes};
  return stored;
}

MatrixSource slice(std::int64_t first_row, std::int64_t rows, std::int64_t first_column,
                   std::int64_t columns) {
  return {.name = "m",
          .stored_rows = kRows,
          .stored_columns = kColumns,
          .first_row = first_row,
          .rows = rows,
          .first_column = first_column,
          .columns = columns};
}

void expect_slice(const Stored& stored, const MatrixSource& source) {
  const device::HostMatrix matrix = host_matrix(stored.view, source);
  std::vector<float> row(static_cast<std::size_t>(source.columns));
  for (std::int64_t r = 0; r < source.rows; ++r) {
    const auto expected = std::span(stored.values)
                              .subspan(static_cast<std::size_t>((source.first_row + r) * kColumns +
                                                                source.first_column),
                                       row.size());
    matrix.read_row(r, row);
    ASSERT_TRUE(std::ranges::equal(row, expected)) << "row " << r;
    if (base::block_shape(matrix.shape.stored).values == 1) continue;
    std::ranges::fill(row, 0.0f);
    format::dequantize_row(matrix.shape.stored, matrix.read_blocks(r), row);
    ASSERT_TRUE(std::ranges::equal(row, expected)) << "blocks of row " << r;
  }
}

TEST(WeightMapSlices, ReadTheirPartOfTheMatrix) {
  for (DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    const Stored stored = random_stored(dtype);
    for (const MatrixSource& source :
         {slice(0, kRows, 0, kColumns), slice(8, 8, 0, kColumns), slice(0, kRows, 32, 32),
          slice(0, kRows, 96, 32), slice(3, 5, 64, 64)}) {
      EXPECT_EQ(matrix_shape(dtype, source).stored, dtype);
      expect_slice(stored, source);
    }
  }
}

TEST(WeightMapSlices, ThatCutABlockAreReadAsFloats) {
  for (DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    const Stored stored = random_stored(dtype);
    for (const MatrixSource& source :
         {slice(0, kRows, 16, 32), slice(0, kRows, 0, 48), slice(2, 4, 40, 8)}) {
      EXPECT_EQ(matrix_shape(dtype, source).stored, DType::kF32);
      expect_slice(stored, source);
    }
  }
}

}  // namespace
}  // namespace hisparse::model
