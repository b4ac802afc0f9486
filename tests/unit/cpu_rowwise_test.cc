#include <cmath>
#include <limits>

#include "cpu_test_support.h"

namespace hisparse::device {
namespace {

// What a product sees of its input: the identity times it, exactly.
std::vector<float> prepared(TestDevice& device, const Weight& identity, LinearParams params) {
  Buffer out = device.floats(params.rows * identity.rows());
  params.products[0] = {.weight = &identity, .out = out.as<float>()};
  device.device->linear(params, *device.stream);
  return device.download(out);
}

std::unique_ptr<Weight> identity(TestDevice& device, std::int64_t width) {
  std::vector<float> values(static_cast<std::size_t>(width * width), 0.0f);
  for (std::int64_t i = 0; i < width; ++i) values[i * width + i] = 1.0f;
  return device.weight(values, width, Compute::kF32);
}

TEST(CpuRmsNorm, MatchesDoublePrecisionAndDoesNotSeeItsBatch) {
  constexpr float kEpsilon = 1e-5f;
  for (IsaChoice isa : isa_levels()) {
    for (std::int64_t width : {1, 7, 8, 16, 23, 576, 1100}) {
      constexpr std::int64_t kRows = 70;
      const auto in = random_floats(kRows * width, 1);
      const auto weight = random_floats(width, 2);
      std::vector<float> first;
      for (int threads : {1, 3}) {
        TestDevice device(isa, threads);
        const auto one = identity(device, width);
        Buffer in_buffer = device.upload(in);
        Buffer weight_buffer = device.upload(weight);
        LinearParams params = {.in = in_buffer.as<float>(),
                               .operand = weight_buffer.as<float>(),
                               .rows = kRows,
                               .epsilon = kEpsilon,
                               .input = LinearInput::kRmsNorm};
        const auto out = prepared(device, *one, params);
        params.rows = 1;
        params.in = params.in + 5 * width;
        EXPECT_TRUE(same_bits(prepared(device, *one, params), row_of(out, 5, width)));
        if (first.empty()) first = out;
        EXPECT_TRUE(same_bits(first, out));
      }
      for (std::int64_t r = 0; r < kRows; ++r) {
        double squares = 0.0;
        for (float x : row_of(in, r, width)) squares += static_cast<double>(x) * x;
        const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + kEpsilon);
        for (std::int64_t i = 0; i < width; ++i) {
          const double expected = in[r * width + i] * scale * weight[i];
          ASSERT_NEAR(first[r * width + i], expected, 2e-6 * std::abs(expected) + 1e-30);
        }
      }
    }
  }
}

std::vector<float> silu_mul(TestDevice& device, const std::vector<float>& gate,
                            const std::vector<float>& up, std::int64_t width) {
  Buffer gate_buffer = device.upload(gate);
  Buffer up_buffer = device.upload(up);
  return prepared(device, *identity(device, width),
                  {.in = gate_buffer.as<float>(),
                   .operand = up_buffer.as<float>(),
                   .rows = static_cast<std::int64_t>(gate.size()) / width,
                   .input = LinearInput::kSiluMul});
}

TEST(CpuSiluMul, MatchesDoublePrecisionOverTheWholeRange) {
  constexpr std::int64_t kWidth = 43;
  std::vector<float> gate = random_floats(kWidth * 930, 3);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= static_cast<float>(i % 50);
  gate[0] = 0.0f;
  gate[1] = 1e30f;
  gate[2] = -1e30f;
  gate[3] = -std::numeric_limits<float>::max();
  const auto up = random_floats(static_cast<std::int64_t>(gate.size()), 4);
  for (IsaChoice isa : isa_levels()) {
    TestDevice device(isa, 3);
    const auto out = silu_mul(device, gate, up, kWidth);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double x = gate[i];
      const double expected = x / (1.0 + std::exp(-x)) * up[i];
      // Behind e^88 the gate is as good as 0: f32 has no smaller power.
      const double floor = gate[i] < -80.0f ? 1e-30 : 1e-37;
      ASSERT_NEAR(out[i], expected, 1e-6 * std::abs(expected) + floor) << gate[i];
    }
  }
}

TEST(CpuSiluMul, NaNStaysNaN) {
  TestDevice device;
  // Whole vectors of any width, and a rest.
  constexpr std::int64_t kWidth = 19;
  const std::vector<float> ones(kWidth, 1.0f);
  for (float value : silu_mul(device, std::vector<float>(kWidth, NAN), ones, kWidth)) {
    EXPECT_TRUE(std::isnan(value));
  }
}

TEST(CpuRowwise, AddGatherAndCopyColumns) {
  TestDevice device;
  const auto a = random_floats(30011, 5);
  const auto b = random_floats(30011, 6);
  Buffer a_buffer = device.upload(a);
  Buffer b_buffer = device.upload(b);
  device.device->add(
      {.accumulator = a_buffer.as<float>(), .addend = b_buffer.as<float>(), .count = 30011},
      *device.stream);
  const auto sum = device.download(a_buffer);
  for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], a[i] + b[i]);

  const std::vector<std::int32_t> indices = {6, 0, 6, 3};
  Buffer index_buffer = device.upload(indices);
  Buffer rows = device.floats(4 * 13);
  device.device->gather_rows({.in = b_buffer.as<float>(),
                              .indices = index_buffer.as<std::int32_t>(),
                              .out = rows.as<float>(),
                              .rows = 4,
                              .width = 13},
                             *device.stream);
  const auto gathered = device.download(rows);
  for (std::int64_t r = 0; r < 4; ++r) {
    EXPECT_TRUE(same_bits(row_of(gathered, r, 13), row_of(b, indices[r], 13)));
  }

  Buffer wide = device.upload(std::vector<float>(4 * 20, -1.0f));
  device.device->copy_columns({.in = rows.as<float>(),
                               .out = wide.as<float>(),
                               .rows = 4,
                               .width = 13,
                               .out_width = 20,
                               .first_column = 5},
                              *device.stream);
  const auto columns = device.download(wide);
  for (std::int64_t r = 0; r < 4; ++r) {
    for (std::int64_t c = 0; c < 20; ++c) {
      const float expected = c < 5 || c >= 18 ? -1.0f : gathered[r * 13 + c - 5];
      EXPECT_EQ(columns[r * 20 + c], expected);
    }
  }
}

TEST(CpuRowwise, SumRanksAddsInRankOrderInsideItsRangeOnly) {
  TestDevice device;
  std::vector<Buffer> buffers;
  SumRanksParams params;
  params.ranks = 3;
  params.begin = 2;
  params.end = 5;
  // In rank order 1e8 + 1 - 1e8 is 0; in another order it is 1.
  for (float value : {1e8f, 1.0f, -1e8f}) {
    buffers.push_back(device.upload(std::vector<float>(7, value)));
    params.buffers[buffers.size() - 1] = buffers.back().as<float>();
  }
  device.device->sum_ranks(params, *device.stream);
  EXPECT_EQ(device.download(buffers[0]), (std::vector<float>{1e8f, 1e8f, 0, 0, 0, 1e8f, 1e8f}));
  EXPECT_EQ(device.download(buffers[1]), (std::vector<float>{1, 1, 0, 0, 0, 1, 1}));
  EXPECT_EQ(device.download(buffers[2]), (std::vector<float>{-1e8f, -1e8f, 0, 0, 0, -1e8f, -1e8f}));
}

}  // namespace
}  // namespace hisparse::device
