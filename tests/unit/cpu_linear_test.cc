#include <array>
#include <cmath>

#include "cpu_test_support.h"

namespace hisparse::device {
namespace {

struct Shape {
  std::int64_t rows, n, k;
};

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

void expect_near_reference(const Shape& shape, Compute compute, const std::vector<float>& in,
                           const std::vector<float>& weight, const std::vector<float>& out) {
  const auto seen = [&](float x) { return compute == Compute::kBF16 ? rounded_to_bf16(x) : x; };
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for (std::int64_t c = 0; c < shape.n; ++c) {
      double sum = 0.0;
      double magnitude = 0.0;
      for (std::int64_t i = 0; i < shape.k; ++i) {
        const double product =
            static_cast<double>(seen(in[r * shape.k + i])) * seen(weight[c * shape.k + i]);
        sum += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(out[r * shape.n + c], sum, 1e-6 * magnitude + 1e-30)
          << "row " << r << " column " << c << " of " << shape.rows << "x" << shape.n << "x"
          << shape.k;
    }
  }
}

TEST(CpuLinear, MatchesDoublePrecision) {
  const std::vector<Shape> shapes = {{1, 1, 1},    {1, 33, 7},    {2, 32, 64},  {3, 40, 513},
                                     {5, 31, 100}, {6, 65, 1030}, {7, 8, 16},   {13, 100, 33},
                                     {70, 96, 48}, {121, 50, 20}, {250, 34, 9}, {4, 160, 1200}};
  for (IsaChoice isa : isa_levels()) {
    TestDevice device(isa, 2);
    for (const Shape& shape : shapes) {
      for (Compute compute : {Compute::kF32, Compute::kBF16}) {
        const auto values = random_floats(shape.n * shape.k, 1);
        const auto in = random_floats(shape.rows * shape.k, 2);
        const auto weight = device.weight(values, shape.n, compute);
        expect_near_reference(shape, compute, in, values, run(device, *weight, in));
      }
    }
  }
}

TEST(CpuLinear, RowHasTheSameBitsInEveryBatchAndThreadCount) {
  constexpr std::int64_t kRows = 131;
  constexpr std::int64_t kN = 75;
  constexpr std::int64_t kK = 4150;  // more than one block of k
  const auto values = random_floats(kN * kK, 3);
  const auto in = random_floats(kRows * kK, 4);
  for (IsaChoice isa : isa_levels()) {
    for (Compute compute : {Compute::kF32, Compute::kBF16}) {
      std::vector<float> alone;
      TestDevice single(isa, 1);
      const auto weight = single.weight(values, kN, compute);
      for (std::int64_t r = 0; r < kRows; ++r) {
        const auto row = row_of(in, r, kK);
        const auto out = run(single, *weight, {row.begin(), row.end()});
        alone.insert(alone.end(), out.begin(), out.end());
      }
      for (int threads : {1, 2, 3}) {
        TestDevice device(isa, threads);
        const auto shared = device.weight(values, kN, compute);
        for (std::int64_t rows : {2, 3, 4, 5, 6, 7, 8, 11, 17, 33, 64, 120, 131}) {
          const auto out = run(device, *shared, {in.begin(), in.begin() + rows * kK});
          ASSERT_TRUE(same_bits(out, std::span(alone).first(out.size())))
              << rows << " rows, " << threads << " threads";
        }
      }
    }
  }
}

TEST(CpuLinear, MoreRowsThanTheCachesHoldEqualSingleOnes) {
  // 18 MB of rows in five blocks: they go over the panels in several groups.
  constexpr std::int64_t kRows = 500;
  constexpr std::int64_t kN = 70;
  constexpr std::int64_t kK = 9000;
  constexpr std::int64_t kStep = 7;
  const auto in = random_floats(kRows * kK, 4);
  for (int threads : {1, 3}) {
    TestDevice device(IsaChoice::kBest, threads);
    const auto weight = device.weight(random_floats(kN * kK, 3), kN, Compute::kF32);
    const auto out = run(device, *weight, in);
    for (std::int64_t r = 0; r < kRows; r += kStep) {
      const auto row = row_of(in, r, kK);
      const auto alone = run(device, *weight, {row.begin(), row.end()});
      ASSERT_TRUE(same_bits(row_of(out, r, kN), alone)) << "row " << r;
    }
  }
}

// Two products, so many panels that the sums of all do not rest together between the parts of k,
// and a last block of fewer rows.
TEST(CpuLinear, PartsOfALongKAddUpToTheWhole) {
  constexpr std::int64_t kRows = 590;
  constexpr std::int64_t kK = 5000;
  constexpr std::int64_t kStep = 97;
  struct Product {
    std::unique_ptr<Weight> weight;
    std::vector<float> before;
    Buffer out;
  };
  const auto in = random_floats(kRows * kK, 4);
  for (const auto& [compute, n] : {std::pair{Compute::kF32, std::int64_t{3600}},
                                   std::pair{Compute::kBF16, std::int64_t{45}}}) {
    TestDevice device(IsaChoice::kBest, 2);
    Buffer in_buffer = device.upload(in);
    LinearParams params = {
        .in = in_buffer.as<float>(), .rows = kRows, .result = LinearResult::kAdd};
    std::vector<Product> products;
    for (std::int64_t columns : {n, std::int64_t{70}}) {
      const auto before = random_floats(kRows * columns, 5);
      products.push_back({.weight = device.weight(random_floats(columns * kK, 3), columns, compute),
                          .before = before,
                          .out = device.upload(before)});
      params.products[products.size() - 1] = {.weight = products.back().weight.get(),
                                              .out = products.back().out.as<float>()};
    }
    device.device->linear(params, *device.stream);
    for (const Product& product : products) {
      const auto found = device.download(product.out);
      const std::int64_t columns = product.weight->rows();
      for (std::int64_t r = kRows - 1; r >= 0; r -= kStep) {
        const auto row = row_of(in, r, kK);
        auto expected = run(device, *product.weight, {row.begin(), row.end()});
        for (std::int64_t c = 0; c < columns; ++c) expected[c] += product.before[r * columns + c];
        ASSERT_TRUE(same_bits(row_of(found, r, columns), expected)) << "row " << r;
      }
    }
  }
}

TEST(CpuLinear, SumsInRisingOrder) {
  // 1e8 + 1 - 1e8 is 0 in f32 in this order, and 1 in any order that adds the large ones first.
  for (IsaChoice isa : isa_levels()) {
    TestDevice device(isa, 1);
    const auto weight = device.weight({1.0f, 1.0f, 1.0f}, 1, Compute::kF32);
    for (std::int64_t rows : {1, 2, 5, 6}) {
      std::vector<float> in;
      for (std::int64_t r = 0; r < rows; ++r) in.insert(in.end(), {1e8f, 1.0f, -1e8f});
      EXPECT_EQ(run(device, *weight, in), std::vector<float>(rows, 0.0f));
    }
  }
}

TEST(CpuLinear, NaNRowDoesNotTouchItsNeighbours) {
  TestDevice device;
  const auto weight = device.weight(random_floats(40 * 16, 5), 40, Compute::kF32);
  auto in = random_floats(8 * 16, 6);
  const auto before = run(device, *weight, in);
  in[3 * 16 + 2] = NAN;
  const auto after = run(device, *weight, in);
  for (std::int64_t r = 0; r < 8; ++r) {
    EXPECT_EQ(same_bits(row_of(before, r, 40), row_of(after, r, 40)), r != 3) << r;
  }
  EXPECT_TRUE(std::isnan(after[3 * 40]));
}

TEST(CpuLinear, WeightsAccountExactlyTheAnnouncedBytes) {
  TestDevice device;
  for (Compute compute : {Compute::kF32, Compute::kBF16}) {
    for (std::int64_t rows : {1, 32, 33}) {
      const auto weight = device.weight(random_floats(rows * 9, 7), rows, compute);
      EXPECT_EQ(device.device->allocated()[base::MemoryOwner::kWeights],
                cpu_weight_bytes({.rows = rows, .cols = 9}, compute));
      EXPECT_EQ(weight->rows(), rows);
      EXPECT_EQ(weight->cols(), 9);
    }
  }
  EXPECT_EQ(device.device->allocated()[base::MemoryOwner::kWeights], 0);
  // Rows fill whole panels, bf16 columns whole pairs.
  EXPECT_EQ(cpu_weight_bytes({.rows = 33, .cols = 9}, Compute::kBF16), 64 * 10 * 2);
  EXPECT_EQ(cpu_weight_bytes({.rows = 33, .cols = 9}, Compute::kF32), 64 * 9 * 4);
}

TEST(CpuLinear, BadWeightsAreRefused) {
  TestDevice device;
  const auto code = [&](const MatrixShape& shape) {
    return device.device
        ->prepare_weight(
            {.shape = shape, .read_row = [](std::int64_t, std::span<float>) {}, .read_blocks = {}},
            Compute::kF32)
        .status()
        .code();
  };
  EXPECT_EQ(code({.rows = 4, .cols = 33, .stored = base::DType::kQ4_0}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.rows = 0, .cols = 4}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.rows = 4, .cols = -1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.rows = std::int64_t{1} << 40, .cols = 4}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.rows = std::int64_t{1} << 30, .cols = std::int64_t{1} << 30}),
            absl::StatusCode::kResourceExhausted);
}

// `computes`: of weights of 40, 7 and 64 rows. Those that want the same form of the input share a
// pass.
void expect_products_equal_single_ones(const std::array<Compute, 3>& computes, std::int64_t rows) {
  constexpr std::int64_t kK = 70;
  constexpr std::array<std::int64_t, 3> kWeightRows = {40, 7, 64};
  TestDevice device(test_options(), 3);
  const auto in = random_floats(static_cast<std::size_t>(rows * kK), 1);
  Buffer in_buffer = device.upload(in);
  LinearParams params = {.in = in_buffer.as<float>(), .rows = rows};
  std::vector<std::unique_ptr<Weight>> weights;
  std::vector<Buffer> outs;
  for (std::size_t i = 0; i < computes.size(); ++i) {
    const auto seed = static_cast<unsigned>(2 + i);
    const auto values = random_floats(static_cast<std::size_t>(kWeightRows[i] * kK), seed);
    weights.push_back(device.weight(values, kWeightRows[i], computes[i]));
    outs.push_back(device.floats(rows * kWeightRows[i]));
    params.products[i] = {.weight = weights[i].get(), .out = outs[i].as<float>()};
  }
  device.device->linear(params, *device.stream);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    EXPECT_TRUE(same_bits(device.download(outs[i]), run(device, *weights[i], in)))
        << "product " << i << " of " << rows << " rows";
  }
}

TEST(CpuLinear, ProductsThatShareTheirInputEqualSingleOnes) {
  for (std::int64_t rows : {1, 9, 300}) {
    expect_products_equal_single_ones({Compute::kBF16, Compute::kBF16, Compute::kBF16}, rows);
    expect_products_equal_single_ones({Compute::kBF16, Compute::kF32, Compute::kBF16}, rows);
    expect_products_equal_single_ones({Compute::kF32, Compute::kF32, Compute::kBF16}, rows);
  }
}

TEST(CpuLinear, AddsTheWholeSumToWhatIsThere) {
  for (IsaChoice isa : isa_levels()) {
    TestDevice device(isa, 2);
    constexpr std::int64_t kK = 600;  // more than one block of k
    for (std::int64_t rows : {1, 2, 5, 40}) {
      const auto in = random_floats(rows * kK, 1);
      const auto before = random_floats(rows * 45, 2);
      const auto weight = device.weight(random_floats(45 * kK, 3), 45, Compute::kF32);
      auto expected = run(device, *weight, in);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = before[i] + expected[i];
      Buffer in_buffer = device.upload(in);
      Buffer out = device.upload(before);
      device.device->linear({.products = {{{.weight = weight.get(), .out = out.as<float>()}}},
                             .in = in_buffer.as<float>(),
                             .rows = rows,
                             .result = LinearResult::kAdd},
                            *device.stream);
      EXPECT_TRUE(same_bits(device.download(out), expected)) << rows;
    }
  }
}

TEST(CpuLinear, CountsCallsAndRows) {
  TestDevice device;
  const auto weight = device.weight(random_floats(12, 8), 3, Compute::kF32);
  run(device, *weight, random_floats(4, 1));
  run(device, *weight, random_floats(20, 1));
  EXPECT_EQ(device.device->counters().linear_calls, 2);
  EXPECT_EQ(device.device->counters().linear_rows, 6);
}

TEST(CpuEmbed, ReadsRowsOutOfThePanelsAndZerosForeignTokens) {
  constexpr std::int64_t kVocabulary = 45;
  constexpr std::int64_t kWidth = 19;
  constexpr base::TokenId kFirst = 100;
  const auto values = random_floats(kVocabulary * kWidth, 9);
  const std::vector<base::TokenId> tokens = {100, 144, 99, 145, 131, 132, -1, 2147483647, 100};
  for (Compute compute : {Compute::kF32, Compute::kBF16}) {
    TestDevice device;
    const auto table = device.weight(values, kVocabulary, compute);
    Buffer token_buffer = device.upload(tokens);
    const auto rows = static_cast<std::int64_t>(tokens.size());
    Buffer out = device.floats(rows * kWidth);
    device.device->embed({.table = table.get(),
                          .tokens = token_buffer.as<base::TokenId>(),
                          .out = out.as<float>(),
                          .rows = rows,
                          .first_token = kFirst},
                         *device.stream);
    const auto result = device.download(out);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t row = std::int64_t{tokens[r]} - kFirst;
      for (std::int64_t i = 0; i < kWidth; ++i) {
        const bool own = row >= 0 && row < kVocabulary;
        const float value = own ? values[row * kWidth + i] : 0.0f;
        EXPECT_EQ(result[r * kWidth + i],
                  compute == Compute::kBF16 ? rounded_to_bf16(value) : value);
      }
    }
  }
}

}  // namespace
}  // namespace hisparse::device
