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

// The share of values that differ between a rank's page of the model and the same rows from the
// fixture, as a mean over the planes.
class PageComparison final {
 public:
  PageComparison(RecallRows& rows, const RecallContext& context, std::int32_t heads)
      : rows_(rows),
        context_(context),
        heads_(heads),
        plane_(kPlaneValues * static_cast<std::size_t>(heads) * sizeof(base::bf16)),
        made_(2 * plane_) {}

  double share(std::int64_t page, std::int32_t rank, std::span<const std::byte> real) {
    double different = 0.0;
    for (std::int32_t layer = 0; layer < kRecallLayers; ++layer) {
      make(page, rank, layer);
      for (std::size_t part = 0; part < 2; ++part) {
        const auto slice =
            real.subspan((2 * static_cast<std::size_t>(layer) + part) * plane_, plane_);
        const Difference difference =
            compare(floats_of(slice), floats_of(std::span(made_).subspan(part * plane_, plane_)));
        // One unit of bf16, of which there are 128 to 256 in a row's largest value.
        EXPECT_LE(difference.largest, 1.0 / 128) << "page " << page << ", layer " << layer;
        EXPECT_GT(difference.size, 0.0);
        different += difference.different;
      }
    }
    return different / (2.0 * kRecallLayers);
  }

 private:
  void make(std::int64_t page, std::int32_t rank, std::int32_t layer) {
    const auto first = static_cast<std::size_t>(page * kPageTokens);
    rows_.fill({.layer = layer,
                .first = page * kPageTokens,
                .tokens = std::span(context_.tokens).subspan(first, kPageTokens),
                .first_kv_head = rank * heads_,
                .kv_heads = heads_,
                .head_dim = kRecallHeadDim,
                .dtype = base::DType::kBF16,
                .keys = std::span(made_).first(plane_),
                .values = std::span(made_).subspan(plane_)});
  }

  RecallRows& rows_;
  const RecallContext& context_;
  const std::int32_t heads_;
  const std::size_t plane_;      // bytes
  std::vector<std::byte> made_;  // keys, values
};

TEST_P(RecallRowsTest, AreThoseOfTheModel) {
  const std::int32_t ranks = GetParam();
  RigOptions options = {.ranks = ranks,
                        .kv_dtype = base::DType::kBF16,
                        .page_tokens = kPageTokens,
                        .max_tokens = kTokens,
                        .max_rows = kTokens};
  ModelRig rig(folder_, options);
  rig.prefill(0, 0, context_.tokens);
  RecallRows rows(model_, context_);
  PageComparison comparison(rows, context_, 2 / ranks);
  constexpr std::int64_t kPages = kTokens / kPageTokens;
  double different = 0.0;
  for (std::int64_t page = 0; page < kPages; ++page) {
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      different += comparison.share(page, rank, rig.read_page(rank, 0, page));
      ASSERT_FALSE(HasFailure());
    }
  }
  different /= static_cast<double>(kPages * ranks);
  EXPECT_LT(different, 0.001);
  RecordProperty("different_share", std::to_string(different));
}

INSTANTIATE_TEST_SUITE_P(Ranks, RecallRowsTest, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace hisparse::test
