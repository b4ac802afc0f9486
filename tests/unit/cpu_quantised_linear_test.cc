// Products of quantised weights and integer activations against a plain reference.
#include <cmath>

#include "cpu_test_support.h"
#include "format/dequantize.h"

namespace hisparse::device {
namespace {

using base::DType;

constexpr std::int64_t kGroup = 32;
constexpr DType kStoredTypes[] = {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1};
constexpr Compute kComputes[] = {Compute::kInt8, Compute::kInt16};

struct Quantised {
  MatrixShape shape;
  std::vector<std::byte> blocks;
  std::vector<float> values;  // [rows, cols], dequantised

  std::int64_t row_bytes() const {
    const base::BlockShape block = base::block_shape(shape.stored);
    return shape.cols / block.values * block.bytes;
  }
};

// Any bytes, with scales (and minima) that are usual numbers.
Quantised random_quantised(DType stored, std::int64_t rows, std::int64_t cols, std::uint32_t seed) {
  Quantised matrix;
  matrix.shape = {.rows = rows, .cols = cols, .stored = stored};
  std::mt19937 random(seed);
  matrix.blocks.resize(static_cast<std::size_t>(rows * matrix.row_bytes()));
  for (std::byte& byte : matrix.blocks) byte = static_cast<std::byte>(random());
  const base::BlockShape block = base::block_shape(stored);
  const int halves = stored == DType::kQ4_1 ? 2 : 1;
  for (std::size_t at = 0; at < matrix.blocks.size(); at += static_cast<std::size_t>(block.bytes)) {
    for (int i = 0; i < halves; ++i) {
      const auto half =
          static_cast<std::uint16_t>((random() % 2 << 15) | (0x2000 + random() % 0xfff));
      std::memcpy(matrix.blocks.data() + at + 2 * i, &half, sizeof(half));
    }
  }
  matrix.values.resize(static_cast<std::size_t>(rows * cols));
  format::dequantize_row(stored, matrix.blocks, matrix.values);
  return matrix;
}

std::unique_ptr<Weight> prepare(TestDevice& device, const Quantised& matrix,
                                Compute compute = Compute::kInt8) {
  auto weight = device.device->prepare_weight(
      {.shape = matrix.shape,
       .read_row = {},
       .read_blocks =
           [&](std::int64_t row) {
             return std::span(matrix.blocks)
                 .subspan(static_cast<std::size_t>(row * matrix.row_bytes()),
                          static_cast<std::size_t>(matrix.row_bytes()));
           }},
      compute);
  EXPECT_TRUE(weight.ok()) << weight.status();
  return std::move(*weight);
}

// x as the kernels see it: round(x / scale) * scale with scale = max |x| / largest of each 32.
std::vector<double> quantised_activations(const std::vector<float>& in, Compute compute) {
  constexpr float kLargestInt16 = 254 * 127 + 126;
  const float largest = compute == Compute::kInt16 ? kLargestInt16 : 127.0f;
  std::vector<double> seen;
  for (std::size_t at = 0; at < in.size(); at += kGroup) {
    float max = 0.0f;
    for (std::size_t i = at; i < at + kGroup; ++i) max = std::max(max, std::abs(in[i]));
    const float scale = max / largest;
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (std::size_t i = at; i < at + kGroup; ++i) {
      seen.push_back(static_cast<double>(scale) * std::nearbyint(in[i] * inverse));
    }
  }
  return seen;
}

std::vector<float> run(TestDevice& device, const Weight& weight, const std::vector<float>& in) {
  const std::int64_t rows = static_cast<std::int64_t>(in.size()) / weight.cols();
  Buffer in_buffer = device.upload(in);
  Buffer out = device.floats(rows * weight.rows());
  device.device->linear({.products = {{{.weight = &weight, .out = out.as<float>()}}},
                         .in = in_buffer.as<float>(),
                         .rows = rows},
                        *device.stream);
  return device.download(out);
}

struct Shape {
  std::int64_t rows, n, k;
};

void expect_near_reference(const Shape& shape, const Quantised& matrix, Compute compute,
                           const std::vector<float>& in, const std::vector<float>& out) {
  const std::vector<double> seen = quantised_activations(in, compute);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for (std::int64_t c = 0; c < shape.n; ++c) {
      double sum = 0.0;
      // The kernels add scale * q and minimum apart: both count for the rounding.
      double magnitude = 0.0;
      for (std::int64_t i = 0; i < shape.k; ++i) {
        const double weight = matrix.values[static_cast<std::size_t>(c * shape.k + i)];
        sum += seen[static_cast<std::size_t>(r * shape.k + i)] * weight;
        magnitude += std::abs(seen[static_cast<std::size_t>(r * shape.k + i)]);
      }
      constexpr double kLargestWeight = 16.0;
      ASSERT_NEAR(out[static_cast<std::size_t>(r * shape.n + c)], sum,
                  1e-6 * kLargestWeight * magnitude + 1e-30)
          << "row " << r << " column " << c << " of " << shape.rows << "x" << shape.n << "x"
          << shape.k << " " << base::name_of(matrix.shape.stored) << " " << name_of(compute);
    }
  }
}

TEST(CpuQuantisedLinear, MatchesTheReference) {
  const std::vector<Shape> shapes = {{1, 1, 32},    {1, 33, 64},   {2, 32, 96},   {3, 40, 512},
                                     {4, 31, 128},  {5, 65, 576},  {7, 8, 32},    {8, 64, 1056},
                                     {13, 100, 64}, {121, 50, 32}, {250, 34, 288}};
  for (IsaChoice isa : isa_levels()) {
    TestDevice device(isa, 2);
    for (const Shape& shape : shapes) {
      for (DType stored : kStoredTypes) {
        const Quantised matrix = random_quantised(stored, shape.n, shape.k, 1);
        const auto in = random_floats(shape.rows * shape.k, 2);
        for (Compute compute : kComputes) {
          const auto weight = prepare(device, matrix, compute);
          expect_near_reference(shape, matrix, compute, in, run(device, *weight, in));
        }
      }
    }
  }
}

// Weights whose quantised values all have the same bits.
Quantised uniform_quantised(DType stored, int pattern) {
  Quantised matrix = random_quantised(stored, 40, 64, 1);
  const base::BlockShape block = base::block_shape(stored);
  const int header = block.bytes - (stored == DType::kQ8_0 ? 32 : 16);
  for (std::size_t at = 0; at < matrix.blocks.size(); at += static_cast<std::size_t>(block.bytes)) {
    for (int i = header; i < block.bytes; ++i) {
      matrix.blocks[at + static_cast<std::size_t>(i)] = static_cast<std::byte>(pattern);
    }
  }
  format::dequantize_row(stored, matrix.blocks, matrix.values);
  return matrix;
}

// The largest sums that the types can reach must not wrap around or saturate.
TEST(CpuQuantisedLinear, ExtremeValuesDoNotOverflow) {
  for (IsaChoice isa : isa_levels()) {
    TestDevice device(isa, 1);
    for (DType stored : kStoredTypes) {
      for (int pattern : {0x00, 0x7f, 0x80, 0x81, 0x88, 0xff}) {
        const Quantised matrix = uniform_quantised(stored, pattern);
        for (Compute compute : kComputes) {
          const auto weight = prepare(device, matrix, compute);
          for (float value : {1.0f, -1.0f}) {
            const std::vector<float> in(5 * 64, value);
            expect_near_reference({5, 40, 64}, matrix, compute, in, run(device, *weight, in));
          }
        }
      }
    }
  }
}

TEST(CpuQuantisedLinear, RowHasTheSameBitsInEveryBatchAndThreadCount) {
  constexpr std::int64_t kRows = 131;
  constexpr std::int64_t kN = 75;
  constexpr std::int64_t kK = 4160;  // more than one block of k
  const auto in = random_floats(kRows * kK, 4);
  for (IsaChoice isa : isa_levels()) {
    for (DType stored : kStoredTypes) {
      const Quantised matrix = random_quantised(stored, kN, kK, 3);
      for (Compute compute : kComputes) {
        std::vector<float> alone;
        TestDevice single(isa, 1);
        const auto weight = prepare(single, matrix, compute);
        for (std::int64_t r = 0; r < kRows; ++r) {
          const auto row = row_of(in, r, kK);
          const auto out = run(single, *weight, {row.begin(), row.end()});
          alone.insert(alone.end(), out.begin(), out.end());
        }
        for (int threads : {1, 2, 3}) {
          TestDevice device(isa, threads);
          const auto shared = prepare(device, matrix, compute);
          for (std::int64_t rows : {2, 3, 4, 5, 6, 7, 8, 11, 17, 33, 64, 120, 131}) {
            const auto out = run(device, *shared, {in.begin(), in.begin() + rows * kK});
            ASSERT_TRUE(same_bits(out, std::span(alone).first(out.size())))
                << rows << " rows, " << threads << " threads, " << name_of(compute);
          }
        }
      }
    }
  }
}

TEST(CpuQuantisedLinear, PartsOfALongKEqualTheWhole) {
  constexpr std::int64_t kRows = 590;
  constexpr std::int64_t kN = 70;
  constexpr std::int64_t kK = 14400;  // the rows are more than the caches hold
  constexpr std::int64_t kStep = 97;
  const auto in = random_floats(kRows * kK, 4);
  const Quantised matrix = random_quantised(DType::kQ8_0, kN, kK, 3);
  TestDevice device;
  for (Compute compute : kComputes) {
    const auto weight = prepare(device, matrix, compute);
    const auto out = run(device, *weight, in);
    for (std::int64_t r = kRows - 1; r >= 0; r -= kStep) {
      const auto row = row_of(in, r, kK);
      const auto alone = run(device, *weight, {row.begin(), row.end()});
      ASSERT_TRUE(same_bits(row_of(out, r, kN), alone)) << "row " << r << " " << name_of(compute);
    }
  }
}

TEST(CpuQuantisedLinear, ZeroRowsGiveZerosAndBrokenOnesStayBroken) {
  for (IsaChoice isa : isa_levels()) {
    TestDevice device(isa, 1);
    for (DType stored : kStoredTypes) {
      const Quantised matrix = random_quantised(stored, 33, 64, 5);
      // The last ones are full of what makes integers overflow, and of what is too small to count.
      std::vector<float> in(7 * 64, 0.0f);
      in[64 + 40] = NAN;
      in[128 + 3] = INFINITY;
      std::fill_n(in.begin() + 3 * 64, 64, NAN);
      std::fill_n(in.begin() + 4 * 64, 64, -INFINITY);
      std::memset(&in[5 * 64], 0xFF, 64 * sizeof(float));
      std::fill_n(in.begin() + 6 * 64, 64, 1e-36f);
      for (Compute compute : kComputes) {
        const auto weight = prepare(device, matrix, compute);
        const auto out = run(device, *weight, in);
        for (std::int64_t c = 0; c < 33; ++c) {
          EXPECT_EQ(out[static_cast<std::size_t>(c)], 0.0f);
          for (std::int64_t row = 1; row <= 5; ++row) {
            EXPECT_TRUE(std::isnan(out[static_cast<std::size_t>(row * 33 + c)])) << row;
          }
          EXPECT_EQ(out[static_cast<std::size_t>(6 * 33 + c)], 0.0f);
        }
      }
    }
  }
}

TEST(CpuQuantisedLinear, StoredValuesAreKeptToTheBitInAsManyBytes) {
  TestDevice device;
  for (DType stored : kStoredTypes) {
    const Quantised matrix = random_quantised(stored, 45, 96, 6);
    const auto table = prepare(device, matrix);
    EXPECT_EQ(cpu_weight_bytes({.rows = 64, .cols = 96, .stored = stored}, Compute::kInt8),
              64 * matrix.row_bytes());
    std::vector<base::TokenId> tokens;
    for (base::TokenId row = 0; row < 45; ++row) tokens.push_back(row);
    Buffer token_buffer = device.upload(tokens);
    Buffer out = device.floats(45 * 96);
    device.device->embed({.table = table.get(),
                          .tokens = token_buffer.as<base::TokenId>(),
                          .out = out.as<float>(),
                          .rows = 45,
                          .first_token = 0},
                         *device.stream);
    EXPECT_TRUE(same_bits(device.download(out), matrix.values)) << base::name_of(stored);
  }
}

}  // namespace
}  // namespace hisparse::device
