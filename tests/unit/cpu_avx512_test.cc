// The AVX-512 kernels against the AVX2 ones, on machines without AVX-512 too.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/avx512_emulated/kernels_v4_emulated.h"

namespace hisparse::device::cpu {
namespace {

struct Kind {
  Element element;
  Activation activation;
};
constexpr Kind kKinds[] = {
    {Element::kF32, Activation::kF32},      {Element::kBF16, Activation::kBF16},
    {Element::kInt8, Activation::kInt8},    {Element::kInt4, Activation::kInt8},
    {Element::kInt4Min, Activation::kInt8}, {Element::kInt8, Activation::kInt16},
    {Element::kInt4, Activation::kInt16},   {Element::kInt4Min, Activation::kInt16}};

std::string name_of(const Kind& kind) {
  return "element " + std::to_string(static_cast<int>(kind.element)) + " activation " +
         std::to_string(static_cast<int>(kind.activation));
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

// Small numbers in whatever the element stores: no NaN, no infinity.
std::vector<std::byte> random_panel(Element element, std::int64_t k, std::mt19937& random) {
  std::vector<std::byte> panel(static_cast<std::size_t>(panel_bytes(element, k)));
  std::normal_distribution<float> normal;
  if (element == Element::kF32) {
    for (std::size_t at = 0; at < panel.size(); at += sizeof(float)) {
      const float value = normal(random);
      std::memcpy(panel.data() + at, &value, sizeof(value));
    }
  } else if (element == Element::kBF16) {
    for (std::size_t at = 0; at < panel.size(); at += 2) {
      const float value = normal(random);
      std::memcpy(panel.data() + at, reinterpret_cast<const std::byte*>(&value) + 2, 2);
    }
  } else {
    for (std::byte& byte : panel) byte = static_cast<std::byte>(random());
    const auto group = static_cast<std::size_t>(group_bytes(element));
    for (std::size_t at = 0; at < panel.size(); at += group) {
      for (int i = 0; i < group_header_bytes(element); i += 2) {
        const auto half = static_cast<std::uint16_t>(0x2000 + random() % 0xfff);
        std::memcpy(panel.data() + at + i, &half, sizeof(half));
      }
    }
  }
  return panel;
}

// In two calls if `border` is above 0: up to that k, and from there on.
std::vector<float> multiply(const KernelTable& kernels, const Kind& kind,
                            const std::vector<std::byte>& panel, const std::vector<float>& in,
                            int rows, std::int64_t border = 0) {
  const auto k = static_cast<std::int64_t>(in.size()) / rows;
  const Activation activation = kind.activation;
  std::vector<std::byte> tiles(static_cast<std::size_t>(rows * packed_row_bytes(activation, k)));
  for (int row = 0; row < rows; row += tile_rows(activation)) {
    RowTile tile;
    tile.count = std::min(tile_rows(activation), rows - row);
    for (int r = 0; r < tile.count; ++r) tile.rows[r] = in.data() + (row + r) * k;
    tile.k = k;
    tile.out = tiles.data() + row * packed_row_bytes(activation, k);
    tile.activation = activation;
    kernels.pack_rows(tile);
  }
  std::vector<float> out(static_cast<std::size_t>(rows * kPanelColumns));
  PanelProduct product = {.panel = panel.data(),
                          .tiles = tiles.data(),
                          .out = out.data(),
                          .k = k,
                          .out_stride = kPanelColumns,
                          .rows = rows,
                          .columns = kPanelColumns,
                          .element = kind.element,
                          .activation = activation};
  std::vector<float> sums(out.size(), NAN);
  const PartOfK first = {.begin = 0, .end = border, .sums = sums.data()};
  const PartOfK second = {.begin = border, .end = k, .sums = sums.data()};
  if (border > 0) {
    product.part = &first;
    kernels.multiply_panel(product);
    EXPECT_EQ(out, std::vector<float>(out.size())) << "written before the last part";
    product.part = &second;
  }
  kernels.multiply_panel(product);
  return out;
}

TEST(Avx512Kernels, ProductsEqualThoseOfAvx2) {
  if (!has_avx2()) GTEST_SKIP() << "this machine does not have AVX2";
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const Kind& kind : kKinds) {
    const bool quantised = is_quantised(kind.element);
    for (int rows : {1, 2, 3, 4, 5, 6, 7, 12, 25}) {
      for (std::int64_t k : quantised ? std::vector<std::int64_t>{32, 96, 288, 544}
                                      : std::vector<std::int64_t>{1, 7, 64, 300, 513}) {
        const auto panel = random_panel(kind.element, k, random);
        std::vector<float> in(static_cast<std::size_t>(rows * k));
        for (float& value : in) value = normal(random);
        const auto expected = multiply(kernels_v3(), kind, panel, in, rows);
        const auto found = multiply(kernels_v4_emulated(), kind, panel, in, rows);
        if (kind.element != Element::kBF16) {
          // Sums in the same order, whatever the width.
          ASSERT_EQ(found, expected) << name_of(kind) << " " << rows << " " << k;
          continue;
        }
        // The bf16 instruction rounds its pairs in its own way.
        const double bound = 1e-5 * static_cast<double>(k) + 1e-5;
        for (std::size_t i = 0; i < found.size(); ++i) {
          ASSERT_NEAR(found[i], expected[i], bound) << rows << " " << k;
        }
      }
    }
  }
}

TEST(Avx512Kernels, ARowHasTheSameBitsInEveryNumberOfRows) {
  if (!has_avx2()) GTEST_SKIP() << "this machine does not have AVX2";
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  constexpr std::int64_t kK = 608;
  constexpr int kRows = 13;
  for (const Kind& kind : kKinds) {
    const auto panel = random_panel(kind.element, kK, random);
    std::vector<float> in(kRows * kK);
    for (float& value : in) value = normal(random);
    const auto together = multiply(kernels_v4_emulated(), kind, panel, in, kRows);
    for (int row = 0; row < kRows; ++row) {
      const auto alone = multiply(kernels_v4_emulated(), kind, panel,
                                  {in.begin() + row * kK, in.begin() + (row + 1) * kK}, 1);
      ASSERT_EQ(std::vector<float>(together.begin() + row * kPanelColumns,
                                   together.begin() + (row + 1) * kPanelColumns),
                alone)
          << name_of(kind) << " " << row;
    }
  }
}

TEST(Avx512Kernels, PartsOfKAddUpToTheWhole) {
  if (!has_avx2()) GTEST_SKIP() << "this machine does not have AVX2";
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const Kind& kind : kKinds) {
    for (int rows : {1, 2, 3, 7, 12, 13, 25}) {
      for (std::int64_t k : is_quantised(kind.element) ? std::vector<std::int64_t>{288, 544}
                                                       : std::vector<std::int64_t>{257, 544}) {
        const auto panel = random_panel(kind.element, k, random);
        std::vector<float> in(static_cast<std::size_t>(rows * k));
        for (float& value : in) value = normal(random);
        for (const KernelTable* kernels : {&kernels_v2(), &kernels_v3(), &kernels_v4_emulated()}) {
          const auto whole = multiply(*kernels, kind, panel, in, rows);
          ASSERT_EQ(multiply(*kernels, kind, panel, in, rows, 256), whole)
              << name_of(kind) << " " << rows << " " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hisparse::device::cpu
