// Rows that are computed from the tokens alone are those that the model leaves in its pages.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/float_formats.h"
#include "engine/dense_pages.h"
#include "tests/recall/recall_rows.h"
#include "tests/support/model_rig.h"

namespace hisparse::test {
namespace {

constexpr std::int64_t kTokens = 2048;
constexpr std::int32_t kPageTokens = 64;
constexpr std::size_t kPlaneValues = std::size_t{kPageTokens} * kRecallHeadDim;  // of one KV head

class RecallRowsTest : public testing::TestWithParam<std::int32_t> {
 protected:
  RecallRowsTest() : model_({.seed = 9, .kv_heads = 2, .chains = 64, .fillers = 100}) {
    folder_ = testing::TempDir() + "hisparse-recall-rows-" + std::to_string(GetParam());
    std::filesystem::create_directories(folder_);
    EXPECT_TRUE(model_.write(folder_).ok());
    context_ = make_context(model_.vocabulary(), {.seed = 2, .tokens = kTokens});
  }

  RecallModel model_;
  std::string folder_;
  RecallContext context_;
};

std::vector<float> floats_of(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(base::bf16));
  for (std::size_t i = 0; i < values.size(); ++i) {
    base::bf16 value;
    std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
    values[i] = base::to_float(value);
  }
  return values;
}

// How the values of one plane of a page differ.
struct Difference {
  double largest = 0.0;    // of a value, against the largest one of its row
  double different = 0.0;  // share of values that are not equal (but for what is next to nothing)
  double size = 0.0;       // the largest value
};

Difference compare(const std::vector<float>& a, const std::vector<float>& b) {
  Difference result;
  std::size_t different = 0;
  for (std::size_t row = 0; row < a.size(); row += kRecallHeadDim) {
    double largest = 0.0, distance = 0.0;
    for (std::size_t i = row; i < row + kRecallHeadDim; ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(a[i])));
      distance = std::max(distance, std::abs(static_cast<double>(a[i]) - b[i]));
    }
    // The model's attention to the token before leaves a trace of others, far below rounding.
    constexpr double kNothing = 1e-6;
    for (std::size_t i = row; i < row + kRecallHeadDim; ++i) {
      if (std::abs(static_cast<double>(a[i]) - b[i]) > kNothing * largest) ++different;
    }
    result.size = std::max(result.size, largest);
    if (largest > 0.0) result.largest = std::max(result.largest, distance / largest);
  }
  result.different = static_cast<double>(different) / static_cast<double>(a.size());
  return result;
}

TEST_P(RecallRowsTest, AreThoseOfTheModel) {
  const std::int32_t ranks = GetParam();
  const std::int32_t heads = 2 / ranks;
  RigOptions options = {.ranks = ranks,
                        .kv_dtype = base::DType::kBF16,
                        .page_tokens = kPageTokens,
                        .max_tokens = kTokens,
                        .max_rows = kTokens};
  ModelRig rig(folder_, options);
  rig.prefill(0, 0, context_.tokens);
  RecallRows rows(model_, context_);
  const std::size_t plane = kPlaneValues * static_cast<std::size_t>(heads) * sizeof(base::bf16);
  std::vector<std::byte> made(2 * plane);
  double different = 0.0;
  for (std::int64_t page = 0; page < kTokens / kPageTokens; ++page) {
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const std::vector<std::byte> real = rig.read_page(rank, 0, page);
      for (std::int32_t layer = 0; layer < kRecallLayers; ++layer) {
        rows.fill(
            {.layer = layer,
             .first = page * kPageTokens,
             .tokens = std::span(context_.tokens)
                           .subspan(static_cast<std::size_t>(page * kPageTokens), kPageTokens),
             .first_kv_head = rank * heads,
             .kv_heads = heads,
             .head_dim = kRecallHeadDim,
             .dtype = base::DType::kBF16,
             .keys = std::span(made).first(plane),
             .values = std::span(made).subspan(plane)});
        for (std::size_t part = 0; part < 2; ++part) {
          const auto slice =
              std::span(real).subspan((2 * static_cast<std::size_t>(layer) + part) * plane, plane);
          const Difference difference =
              compare(floats_of(slice), floats_of(std::span(made).subspan(part * plane, plane)));
          // One unit of bf16, of which there are 128 to 256 in a row's largest value.
          ASSERT_LE(difference.largest, 1.0 / 128) << "page " << page << ", layer " << layer;
          ASSERT_GT(difference.size, 0.0);
          different += difference.different;
        }
      }
    }
  }
  different /= static_cast<double>(kTokens / kPageTokens * ranks * kRecallLayers * 2);
  EXPECT_LT(different, 0.005);
  RecordProperty("different_share", std::to_string(different));
}

INSTANTIATE_TEST_SUITE_P(Ranks, RecallRowsTest, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace hisparse::test
