// Packed rows against the layout that kernel_pack.inc.h describes, value by value.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float_formats.h"
#include "device/cpu/kernels.h"
#include "tests/unit/avx512_emulated/kernels_v4_emulated.h"

namespace hisparse::device::cpu {
namespace {

constexpr std::byte kUntouched{0xA5};

struct Level {
  const char* name;
  const KernelTable& kernels;
  bool bf16_pairs;  // AVX-512's layout
};

std::vector<Level> levels() {
  std::vector<Level> levels = {{"v2", kernels_v2(), false}};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    levels.push_back({"v3", kernels_v3(), false});
    levels.push_back({"v4 emulated", kernels_v4_emulated(), true});
  }
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) {
    levels.push_back({"v4", kernels_v4(), true});
  }
  return levels;
}

template <typename T>
void put(std::vector<std::byte>& out, std::int64_t index, T value) {
  std::memcpy(out.data() + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

using Rows = std::vector<std::vector<float>>;

void plain_floats(const Rows& rows, Activation activation, bool pairs,
                  std::vector<std::byte>& out) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const auto k = static_cast<std::int64_t>(rows[0].size());
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t i = 0; i < (k + 1) / 2 * 2; ++i) {
      const float value = i < k ? rows[r][i] : 0.0f;
      const base::bf16 rounded = base::to_bf16(value);
      if (activation == Activation::kF32) {
        put(out, i * count + r, value);
      } else if (pairs) {
        put(out, (i / 2 * count + r) * 2 + i % 2, rounded.bits);
      } else {
        put(out, i * count + r, base::to_float(rounded));
      }
    }
  }
}

struct Integers {
  float scale = 0.0f;
  std::vector<std::int32_t> values;
};

Integers quantise(const float* in, float largest) {
  float max = 0.0f;
  float taint = 0.0f;
  for (int i = 0; i < kGroupValues; ++i) {
    max = std::max(max, std::abs(in[i]));
    taint += in[i] * 0.0f;
  }
  Integers group;
  group.values.resize(kGroupValues);
  group.scale = taint;
  if (!(max >= 1e-30f) || std::isnan(taint)) return group;
  group.scale = max / largest;
  const float inverse = 1.0f / group.scale;
  for (int i = 0; i < kGroupValues; ++i) {
    group.values[i] = static_cast<std::int32_t>(std::nearbyint(in[i] * inverse));
  }
  return group;
}

void plain_integers(const Rows& rows, Activation activation, std::vector<std::byte>& out) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const auto k = static_cast<std::int64_t>(rows[0].size());
  const int plane_count = planes(activation);
  const std::int64_t group_bytes = count * packed_row_bytes(activation, kGroupValues);
  for (std::int64_t at = 0; at < k; at += kGroupValues) {
    const std::int64_t begin = at / kGroupValues * group_bytes;
    const std::int64_t floats = (begin + count * plane_count * kGroupValues) / 4;
    for (std::int64_t r = 0; r < count; ++r) {
      const Integers group =
          quantise(rows[r].data() + at, plane_count == 2 ? kPlaneBase * 127 + 126 : 127);
      std::int32_t sums[2] = {};
      for (int i = 0; i < kGroupValues; ++i) {
        const std::int32_t value = group.values[i];
        const auto high =
            static_cast<std::int32_t>(std::nearbyint(static_cast<float>(value) / kPlaneBase));
        const std::int32_t parts[2] = {plane_count == 2 ? high : value, value - high * kPlaneBase};
        for (int p = 0; p < plane_count; ++p) {
          const std::int64_t quad = (i / kQuadValues * count + r) * plane_count + p;
          put(out, begin + quad * kQuadValues + i % kQuadValues,
              static_cast<std::int8_t>(parts[p]));
          sums[p] += parts[p];
        }
      }
      const std::int32_t sum = plane_count == 2 ? sums[0] * kPlaneBase + sums[1] : sums[0];
      put(out, floats + r, group.scale);
      put(out, floats + count + r, group.scale * static_cast<float>(sum));
      for (int p = 0; p < plane_count; ++p) {
        put(out, floats + 2 * count + r * plane_count + p, sums[p]);
      }
    }
  }
}

// Which NaN a scale is, is not promised.
void make_nan_scales_equal(std::int64_t count, Activation activation, std::int64_t groups,
                           std::vector<std::byte>& tile) {
  const std::int64_t group_floats = count * packed_row_bytes(activation, kGroupValues) / 4;
  const std::int64_t header = count * planes(activation) * kGroupValues / 4;
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t i = 0; i < 2 * count; ++i) {
      const std::int64_t at = group * group_floats + header + i;
      float value = 0.0f;
      std::memcpy(&value, tile.data() + at * 4, sizeof(value));
      if (std::isnan(value)) put(tile, at, std::numeric_limits<float>::quiet_NaN());
    }
  }
}

void expect_plain_layout(const Rows& rows, Activation activation) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const auto k = static_cast<std::int64_t>(rows[0].size());
  const bool integers = activation == Activation::kInt8 || activation == Activation::kInt16;
  for (const Level& level : levels()) {
    // What lies behind the tile belongs to another one.
    constexpr std::int64_t kBehind = 64;
    const std::vector<std::byte> untouched(
        static_cast<std::size_t>(count * packed_row_bytes(activation, k) + kBehind), kUntouched);
    std::vector<std::byte> expected = untouched;
    std::vector<std::byte> found = untouched;
    if (integers) {
      plain_integers(rows, activation, expected);
    } else {
      plain_floats(rows, activation, level.bf16_pairs, expected);
    }
    RowTile tile = {
        .count = static_cast<int>(count), .k = k, .out = found.data(), .activation = activation};
    for (std::int64_t r = 0; r < count; ++r) tile.rows[r] = rows[r].data();
    level.kernels.pack_rows(tile);
    if (integers) {
      make_nan_scales_equal(count, activation, k / kGroupValues, expected);
      make_nan_scales_equal(count, activation, k / kGroupValues, found);
    }
    ASSERT_TRUE(expected == found) << level.name << " activation " << static_cast<int>(activation)
                                   << " rows " << count << " k " << k;
  }
}

// Values that rounding and scales may get wrong, and ordinary ones.
std::vector<float> odd_values() {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0f,   -0.0f,   infinity, -infinity, 3.4028235e38f, -3.4028235e38f,
                               1e-45f, -1e-45f, 1e-39f,   -3e-39f,   1e-30f,        9e-31f};
  // NaNs of both signs and kinds (also one whose payload lies in the lower half alone), ties to
  // both sides, and their neighbours.
  for (std::uint32_t bits :
       {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff80ffffu, 0x7fffffffu, 0x3f808000u, 0x3f818000u,
        0xbf808000u, 0x3f807fffu, 0x3f808001u, 0x7f7f8000u, 0x00008000u, 0x007f8000u}) {
    values.push_back(base::bits_to_float(bits));
  }
  return values;
}

Rows random_rows(std::int64_t count, std::int64_t k, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Rows rows(static_cast<std::size_t>(count), std::vector<float>(static_cast<std::size_t>(k)));
  for (auto& row : rows) {
    for (float& value : row) value = normal(random);
  }
  return rows;
}

// A row's neighbours in a group of k would hide what one odd value does: rows with few of them too.
void scatter_odd_values(Rows& rows, std::size_t every, std::mt19937& random) {
  const std::vector<float> odd = odd_values();
  for (auto& row : rows) {
    for (float& value : row) {
      if (random() % every == 0) value = odd[random() % odd.size()];
    }
  }
}

void check_all(Activation activation, const std::vector<std::int64_t>& depths) {
  std::mt19937 random(1);
  for (int count = 1; count <= tile_rows(activation); ++count) {
    for (std::int64_t k : depths) {
      Rows rows = random_rows(count, k, random);
      expect_plain_layout(rows, activation);
      for (std::size_t every : {100, 3, 1}) {
        Rows changed = rows;
        scatter_odd_values(changed, every, random);
        expect_plain_layout(changed, activation);
      }
    }
  }
}

std::vector<std::int64_t> float_depths() {
  std::vector<std::int64_t> depths = {63, 64, 65, 300, 513};
  for (std::int64_t k = 1; k <= 40; ++k) depths.push_back(k);
  return depths;
}

TEST(PackRows, FloatsLieInThePlainLayout) { check_all(Activation::kF32, float_depths()); }
TEST(PackRows, RoundedFloatsLieInThePlainLayout) { check_all(Activation::kBF16, float_depths()); }
TEST(PackRows, IntegersLieInThePlainLayout) { check_all(Activation::kInt8, {32, 64, 96, 544}); }
TEST(PackRows, WideIntegersLieInThePlainLayout) {
  check_all(Activation::kInt16, {32, 64, 96, 544});
}

// A group of zeros, of values too small for an inverse, and of the smallest that have one.
TEST(PackRows, TinyGroupsLieInThePlainLayout) {
  for (Activation activation : {Activation::kInt8, Activation::kInt16}) {
    for (float value : {0.0f, -0.0f, 1e-45f, 9.9e-31f, 1e-30f, 1.1e-30f}) {
      for (int count = 1; count <= tile_rows(activation); ++count) {
        Rows rows(static_cast<std::size_t>(count), std::vector<float>(2 * kGroupValues, value));
        rows.back()[kGroupValues] = 1.0f;
        expect_plain_layout(rows, activation);
      }
    }
  }
}

}  // namespace
}  // namespace hisparse::device::cpu
