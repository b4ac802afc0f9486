// Runs against the real SmolLM2-135M-Instruct Q4_1 file that HISPARSE_SMOLLM2 names.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "format/checkpoint.h"
#include "format/dequantize.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hisparse::format {
namespace {

using ::testing::ElementsAre;

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("HISPARSE_SMOLLM2");
    if (path == nullptr) GTEST_SKIP() << "HISPARSE_SMOLLM2 does not name the SmolLM2 GGUF file";
    auto opened = Checkpoint::open(path);
    ASSERT_TRUE(opened.ok()) << opened.status();
    checkpoint_ = *std::move(opened);
  }

  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(SmolLm2, MetadataTellsTheModel) {
  const Metadata& metadata = checkpoint_->metadata();
  EXPECT_EQ(*metadata.get_string("general.architecture"), "llama");
  EXPECT_EQ(*metadata.get_int("llama.block_count"), 30);
  EXPECT_EQ(*metadata.get_int("llama.embedding_length"), 576);
  EXPECT_EQ(*metadata.get_int("llama.attention.head_count"), 9);
  EXPECT_EQ(*metadata.get_int("llama.attention.head_count_kv"), 3);
  EXPECT_EQ(*metadata.get_double("llama.rope.freq_base"), 100000.0);
  EXPECT_EQ(*metadata.get_bool("tokenizer.ggml.add_bos_token"), false);
  EXPECT_THAT(**metadata.get_strings("general.languages"), ElementsAre("en"));
  EXPECT_EQ((*metadata.get_strings("tokenizer.ggml.tokens"))->size(), 49152u);
  EXPECT_EQ((*metadata.get_strings("tokenizer.ggml.merges"))->size(), 48900u);
  EXPECT_EQ((*metadata.get_ints("tokenizer.ggml.token_type"))->size(), 49152u);
  EXPECT_EQ(metadata.values().size(), 33u);
}

TEST_F(SmolLm2, TensorsHaveTheirShapesAndTypes) {
  EXPECT_EQ(checkpoint_->tensors().size(), 272u);
  const TensorView* embedding = checkpoint_->find("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_THAT(embedding->shape, ElementsAre(49152, 576));
  EXPECT_EQ(embedding->dtype, base::DType::kQ8_0);
  const TensorView* down = checkpoint_->find("blk.29.ffn_down.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_THAT(down->shape, ElementsAre(576, 1536));
  std::set<base::DType> dtypes;
  for (const TensorView& tensor : checkpoint_->tensors()) dtypes.insert(tensor.dtype);
  EXPECT_THAT(dtypes, ElementsAre(base::DType::kF32, base::DType::kQ8_0, base::DType::kQ4_1));
}

TEST_F(SmolLm2, EveryWeightExpandsToAFiniteValueOfModestSize) {
  constexpr float kMostMagnitude = 100.0f;
  for (const TensorView& tensor : checkpoint_->tensors()) {
    std::size_t count = 1;
    for (const std::int64_t dimension : tensor.shape) count *= static_cast<std::size_t>(dimension);
    std::vector<float> values(count);
    dequantize_row(tensor.dtype, tensor.bytes, values);
    float most = 0;
    for (const float value : values)
      most = std::isfinite(value) ? std::max(most, std::abs(value)) : INFINITY;
    EXPECT_GT(most, 0.0f) << tensor.name;
    EXPECT_LT(most, kMostMagnitude) << tensor.name;
  }
}

}  // namespace
}  // namespace hisparse::format
