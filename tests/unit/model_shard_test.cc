// Rotary frequencies of a model, and how it is split over ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/model_spec.h"

namespace hisparse::model {
namespace {

using testing::HasSubstr;

ModelSpec rope_spec() {
  ModelSpec spec;
  spec.head_dim = 8;
  spec.rope.theta = 10000.0;
  return spec;
}

void expect_frequencies(const std::vector<double>& actual, const std::vector<double>& expected) {
  constexpr double kRelative = 1e-14;
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], expected[i] * kRelative) << i;
  }
}

TEST(InverseFrequencies, AreNegativePowersOfTheta) {
  expect_frequencies(inverse_frequencies(rope_spec(), {}), {1.0, 0.1, 0.01, 0.001});
}

TEST(InverseFrequencies, Llama3KeepsFastPairsScalesSlowOnesAndBlendsBetween) {
  ModelSpec spec = rope_spec();
  spec.rope.llama3 = Llama3Scaling{.factor = 8.0,
                                   .low_freq_factor = 1.0,
                                   .high_freq_factor = 4.0,
                                   .original_max_position = 1024.0};
  // Turns within 1024 positions: 163, 16.3, 1.63 and 0.163. The third pair, with s = 0.63 / 3 of
  // the way from slow to fast, is 0.01 * ((1 - s) / 8 + s).
  expect_frequencies(inverse_frequencies(spec, {}), {1.0, 0.1, 0.003086760967011275, 0.001 / 8});
}

TEST(InverseFrequencies, DivisorsOfTheFileReplaceTheScaling) {
  ModelSpec spec = rope_spec();
  const std::vector<float> divisors{1.0f, 2.0f, 4.0f, 8.0f};
  const std::vector<double> expected{1.0, 0.05, 0.0025, 0.000125};
  expect_frequencies(inverse_frequencies(spec, divisors), expected);
  spec.rope.llama3 = Llama3Scaling{.factor = 100.0,
                                   .low_freq_factor = 1.0,
                                   .high_freq_factor = 4.0,
                                   .original_max_position = 1.0};
  expect_frequencies(inverse_frequencies(spec, divisors), expected);
}

// Sizes that 1, 2 and 6 ranks divide.
ModelSpec small_spec() {
  ModelSpec spec;
  spec.heads = 6;
  spec.kv_heads = 2;
  spec.intermediate = 96;
  spec.vocabulary = 120;
  return spec;
}

TEST(Shard, OfOneRankIsTheWholeModel) {
  const auto shard = make_shard(small_spec(), 0, 1);
  ASSERT_TRUE(shard.ok()) << shard.status();
  EXPECT_EQ(shard->heads, 6);
  EXPECT_EQ(shard->first_head, 0);
  EXPECT_EQ(shard->kv_heads, 2);
  EXPECT_EQ(shard->first_kv_head, 0);
  EXPECT_EQ(shard->intermediate, 96);
  EXPECT_EQ(shard->vocabulary, 120);
}

TEST(Shard, RanksSplitEveryDimension) {
  const ModelSpec spec = small_spec();
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    const auto shard = make_shard(spec, rank, 2);
    ASSERT_TRUE(shard.ok()) << shard.status();
    EXPECT_EQ(shard->rank, rank);
    EXPECT_EQ(shard->ranks, 2);
    EXPECT_EQ(shard->heads, 3);
    EXPECT_EQ(shard->first_head, 3 * rank);
    EXPECT_EQ(shard->kv_heads, 1);
    EXPECT_EQ(shard->first_kv_head, rank);
    EXPECT_EQ(shard->intermediate, 48);
    EXPECT_EQ(shard->vocabulary, 60);
  }
}

TEST(Shard, MoreRanksThanKvHeadsShareThem) {
  ModelSpec spec = small_spec();
  spec.heads = 12;
  const std::int32_t ranks = 4;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const auto shard = make_shard(spec, rank, ranks);
    ASSERT_TRUE(shard.ok()) << shard.status();
    EXPECT_EQ(shard->heads, 3);
    EXPECT_EQ(shard->kv_heads, 1);
    // The KV head that the rank's own query heads read: six query heads to each.
    EXPECT_EQ(shard->first_kv_head, shard->first_head / 6);
  }
}

TEST(Shard, ARefusalListsTheSizesThatDivide) {
  const ModelSpec spec = small_spec();
  for (const std::int32_t ranks : {4, 5, 7, 12, 0, -1}) {
    const auto shard = make_shard(spec, 0, ranks);
    EXPECT_EQ(shard.status().code(), absl::StatusCode::kInvalidArgument) << ranks;
    EXPECT_THAT(std::string(shard.status().message()),
                HasSubstr("size of " + std::to_string(ranks) + " does not divide"));
    EXPECT_THAT(std::string(shard.status().message()),
                testing::EndsWith("--tensor-parallel-size 1, 2, 6"));
  }
}

TEST(Shard, EachDimensionMustDivide) {
  const ModelSpec good = small_spec();
  const auto accepted = [](const ModelSpec& spec) { return make_shard(spec, 0, 2).ok(); };
  ASSERT_TRUE(accepted(good));
  ModelSpec spec = good;
  spec.heads = 5;
  EXPECT_FALSE(accepted(spec));
  spec = good;
  spec.kv_heads = 3;
  EXPECT_FALSE(accepted(spec));
  spec = good;
  spec.intermediate = 97;
  EXPECT_FALSE(accepted(spec));
  spec = good;
  spec.vocabulary = 121;
  EXPECT_FALSE(accepted(spec));
}

}  // namespace
}  // namespace hisparse::model
