// What a checkpoint's metadata says of the model, and what is refused in which words.
#include "model/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace hisparse::model {
namespace {

using format::MetadataValue;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Values = std::map<std::string, MetadataValue, std::less<>>;
using Ints = std::vector<std::int64_t>;
using Strings = std::vector<std::string>;

// A checkpoint that is only its metadata and the shapes of its tensors.
class FakeCheckpoint final : public format::Checkpoint {
 public:
  FakeCheckpoint(format::CheckpointKind kind, Values values,
                 std::vector<format::TensorView> tensors = {})
      : kind_(kind), metadata_(std::move(values)), tensors_(std::move(tensors)) {}

  format::CheckpointKind kind() const override { return kind_; }
  const format::Metadata& metadata() const override { return metadata_; }
  const std::vector<format::TensorView>& tensors() const override { return tensors_; }
  const format::TensorView* find(std::string_view name) const override {
    for (const format::TensorView& tensor : tensors_) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
  void release(const format::TensorView&) const override {}
  std::string digest() const override { return "fake"; }

 private:
  format::CheckpointKind kind_;
  format::Metadata metadata_;
  std::vector<format::TensorView> tensors_;
};

Values hf_values() {
  return {{"architectures", Strings{"LlamaForCausalLM"}},
          {"num_hidden_layers", std::int64_t{3}},
          {"hidden_size", std::int64_t{48}},
          {"num_attention_heads", std::int64_t{6}},
          {"num_key_value_heads", std::int64_t{2}},
          {"intermediate_size", std::int64_t{96}},
          {"vocab_size", std::int64_t{120}},
          {"max_position_embeddings", std::int64_t{2048}},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},
          {"eos_token_id", std::int64_t{2}}};
}

Values gguf_values() {
  return {{"general.architecture", std::string("llama")},
          {"llama.block_count", std::int64_t{3}},
          {"llama.embedding_length", std::int64_t{48}},
          {"llama.attention.head_count", std::int64_t{6}},
          {"llama.attention.head_count_kv", std::int64_t{2}},
          {"llama.feed_forward_length", std::int64_t{96}},
          {"llama.context_length", std::int64_t{2048}},
          {"llama.attention.layer_norm_rms_epsilon", 1e-5},
          {"llama.rope.freq_base", 500000.0},
          {"llama.rope.dimension_count", std::int64_t{8}},
          {"tokenizer.ggml.eos_token_id", std::int64_t{2}}};
}

format::TensorView tensor(std::string name, std::vector<std::int64_t> shape) {
  format::TensorView view;
  view.name = std::move(name);
  view.shape = std::move(shape);
  return view;
}

// The values with some changed or added.
Values changed(Values values, const Values& changes) {
  for (const auto& [key, value] : changes) values.insert_or_assign(key, value);
  return values;
}

Values without(Values values, const std::string& key) {
  EXPECT_EQ(values.erase(key), 1U) << key;
  return values;
}

absl::StatusOr<ModelSpec> read_hf(Values values) {
  return read_model_spec(FakeCheckpoint(format::CheckpointKind::kHuggingFace, std::move(values)));
}

absl::StatusOr<ModelSpec> read_gguf(Values values, std::vector<format::TensorView> tensors = {
                                                       tensor("token_embd.weight", {120, 48})}) {
  return read_model_spec(
      FakeCheckpoint(format::CheckpointKind::kGguf, std::move(values), std::move(tensors)));
}

void expect_refused(const absl::StatusOr<ModelSpec>& spec, absl::StatusCode code,
                    const std::string& words) {
  EXPECT_EQ(spec.status().code(), code) << spec.status() << " for " << words;
  EXPECT_THAT(std::string(spec.status().message()), HasSubstr(words));
}

void expect_hf_refused(const Values& changes, absl::StatusCode code, const std::string& words) {
  expect_refused(read_hf(changed(hf_values(), changes)), code, words);
}

void expect_gguf_refused(const Values& changes, absl::StatusCode code, const std::string& words) {
  expect_refused(read_gguf(changed(gguf_values(), changes)), code, words);
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

void expect_common_sizes(const ModelSpec& spec) {
  EXPECT_EQ(spec.layers, 3);
  EXPECT_EQ(spec.hidden, 48);
  EXPECT_EQ(spec.heads, 6);
  EXPECT_EQ(spec.kv_heads, 2);
  EXPECT_EQ(spec.head_dim, 8);
  EXPECT_EQ(spec.intermediate, 96);
  EXPECT_EQ(spec.vocabulary, 120);
  EXPECT_EQ(spec.max_position, 2048);
  EXPECT_EQ(spec.rms_epsilon, 1e-5f);
  EXPECT_EQ(spec.rope.theta, 500000.0);
  EXPECT_FALSE(spec.rope.llama3);
  EXPECT_THAT(spec.end_tokens, ElementsAre(2));
}

TEST(ModelSpecHf, EveryKeyIsRead) {
  const auto spec = read_hf(hf_values());
  ASSERT_TRUE(spec.ok()) << spec.status();
  expect_common_sizes(*spec);
  EXPECT_EQ(spec->architecture, "LlamaForCausalLM");
  EXPECT_FALSE(spec->tied);
}

TEST(ModelSpecHf, AbsentKeysHaveTheDefaultsOfLlama) {
  Values values = without(without(hf_values(), "num_key_value_heads"), "rope_theta");
  const auto spec = read_hf(without(values, "eos_token_id"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->kv_heads, 6);
  EXPECT_EQ(spec->rope.theta, 10000.0);
  EXPECT_THAT(spec->end_tokens, IsEmpty());
}

TEST(ModelSpecHf, StatedValuesWinOverDefaults) {
  const auto spec = read_hf(changed(hf_values(), {{"head_dim", std::int64_t{16}},
                                                  {"tie_word_embeddings", true},
                                                  {"attention_bias", false},
                                                  {"mlp_bias", false},
                                                  {"hidden_act", std::string("silu")},
                                                  {"rope_parameters.rope_theta", 7.0}}));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->head_dim, 16);
  EXPECT_TRUE(spec->tied);
  EXPECT_EQ(spec->rope.theta, 7.0);
}

TEST(ModelSpecHf, EveryRequiredKeyIsNamedWhenItIsAbsent) {
  for (const std::string key :
       {"architectures", "num_hidden_layers", "hidden_size", "num_attention_heads",
        "intermediate_size", "vocab_size", "max_position_embeddings", "rms_norm_eps"}) {
    expect_refused(read_hf(without(hf_values(), key)), absl::StatusCode::kNotFound, key);
  }
}

TEST(ModelSpecHf, SizesOutsideTheirRangeAreNamed) {
  for (const std::string key :
       {"num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
        "head_dim", "intermediate_size", "vocab_size", "max_position_embeddings"}) {
    for (const std::int64_t size :
         {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 25, std::int64_t{1} << 40}) {
      expect_hf_refused({{key, size}}, kInvalid, key + " is " + std::to_string(size));
    }
  }
  expect_hf_refused({{"num_hidden_layers", std::int64_t{(1 << 14) + 1}}}, kInvalid,
                    "num_hidden_layers");
  expect_hf_refused({{"hidden_size", 48.0}}, kInvalid, "hidden_size");
}

TEST(ModelSpecHf, AnotherArchitectureIsRefusedByName) {
  expect_hf_refused({{"architectures", Strings{"MambaForCausalLM"}}}, kUnimplemented,
                    "'MambaForCausalLM'");
  expect_hf_refused({{"architectures", Strings{}}}, kUnimplemented, "(none)");
}

TEST(ModelSpecHf, BiasesAndOtherActivationsAreRefusedByName) {
  expect_hf_refused({{"attention_bias", true}}, kUnimplemented, "attention_bias");
  expect_hf_refused({{"mlp_bias", true}}, kUnimplemented, "mlp_bias");
  expect_hf_refused({{"hidden_act", std::string("gelu")}}, kUnimplemented, "hidden_act 'gelu'");
}

TEST(ModelSpecHf, OtherRopeTypesAreRefusedInEitherSpelling) {
  for (const std::string key : {"rope_scaling.type", "rope_scaling.rope_type",
                                "rope_parameters.type", "rope_parameters.rope_type"}) {
    expect_hf_refused({{key, std::string("yarn")}}, kUnimplemented, "rope type 'yarn'");
    EXPECT_TRUE(read_hf(changed(hf_values(), {{key, std::string("default")}})).ok()) << key;
  }
}

TEST(ModelSpecHf, PartialRotationIsRefusedWhereverItStands) {
  for (const std::string prefix : {"rope_parameters.", "rope_scaling.", ""}) {
    const std::string key = prefix + "partial_rotary_factor";
    expect_hf_refused({{key, 0.5}}, kUnimplemented, "partial_rotary_factor");
    EXPECT_TRUE(read_hf(changed(hf_values(), {{key, 1.0}})).ok()) << key;
  }
}

Values llama3(const std::string& prefix) {
  return {{prefix + "rope_type", std::string("llama3")},
          {prefix + "factor", 8.0},
          {prefix + "low_freq_factor", 1.0},
          {prefix + "high_freq_factor", 4.0},
          {prefix + "original_max_position_embeddings", std::int64_t{1024}}};
}

TEST(ModelSpecHf, Llama3ScalingIsReadFromOldAndNewFiles) {
  for (const std::string prefix : {"rope_parameters.", "rope_scaling."}) {
    const auto spec = read_hf(changed(hf_values(), llama3(prefix)));
    ASSERT_TRUE(spec.ok()) << spec.status();
    ASSERT_TRUE(spec->rope.llama3) << prefix;
    EXPECT_EQ(spec->rope.llama3->factor, 8.0);
    EXPECT_EQ(spec->rope.llama3->low_freq_factor, 1.0);
    EXPECT_EQ(spec->rope.llama3->high_freq_factor, 4.0);
    EXPECT_EQ(spec->rope.llama3->original_max_position, 1024.0);
  }
}

TEST(ModelSpecHf, BrokenLlama3ScalingIsRefused) {
  const Values good = changed(hf_values(), llama3("rope_scaling."));
  for (const char* name :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    const std::string key = std::string("rope_scaling.") + name;
    expect_refused(read_hf(without(good, key)), absl::StatusCode::kNotFound, key);
    expect_refused(read_hf(changed(good, {{key, 0.0}})), kInvalid, "llama3");
    expect_refused(read_hf(changed(good, {{key, std::numeric_limits<double>::quiet_NaN()}})),
                   kInvalid, "llama3");
  }
  expect_refused(read_hf(changed(good, {{"rope_scaling.low_freq_factor", 4.0}})), kInvalid,
                 "llama3");
}

TEST(ModelSpecHf, HeadsThatDoNotFitTogetherAreRefused) {
  expect_hf_refused({{"num_key_value_heads", std::int64_t{4}}}, kInvalid,
                    "KV heads (4) does not divide the number of heads (6)");
  expect_hf_refused({{"num_key_value_heads", std::int64_t{12}}}, kInvalid, "KV heads (12)");
  expect_hf_refused({{"head_dim", std::int64_t{7}}}, kInvalid, "head size 7");
  // 6 heads in 4 values leave none for a head.
  expect_hf_refused({{"hidden_size", std::int64_t{4}}}, kInvalid, "head size 0");
}

TEST(ModelSpecHf, AnEpsilonOrThetaThatIsNoPositiveNumberIsRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double epsilon : {0.0, -1e-5, 1.0, nan}) {
    expect_hf_refused({{"rms_norm_eps", epsilon}}, kInvalid, "epsilon");
  }
  for (const double theta : {0.0, -1.0, nan}) {
    expect_hf_refused({{"rope_theta", theta}}, kInvalid, "theta");
  }
}

TEST(ModelSpecHf, EndTokensAreOneOrAListAndTheGenerationConfigWins) {
  const auto list = read_hf(changed(hf_values(), {{"eos_token_id", Ints{5, 119}}}));
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(list->end_tokens, ElementsAre(5, 119));
  const auto generation =
      read_hf(changed(hf_values(), {{"generation_config.eos_token_id", Ints{7, 8}}}));
  ASSERT_TRUE(generation.ok()) << generation.status();
  EXPECT_THAT(generation->end_tokens, ElementsAre(7, 8));
  const auto none = read_hf(changed(hf_values(), {{"eos_token_id", Strings{}}}));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(none->end_tokens, IsEmpty());
}

TEST(ModelSpecHf, AnEndTokenOutsideTheVocabularyIsRefused) {
  for (const char* key : {"eos_token_id", "generation_config.eos_token_id"}) {
    for (const std::int64_t id : {std::int64_t{120}, std::int64_t{-1}, std::int64_t{1} << 32}) {
      const std::string words = std::string(key) + " names token " + std::to_string(id);
      expect_hf_refused({{key, id}}, kInvalid, words);
      expect_hf_refused({{key, Ints{2, id}}}, kInvalid, words);
    }
    expect_hf_refused({{key, std::string("</s>")}}, kInvalid, key);
  }
}

TEST(ModelSpecGguf, EveryKeyIsRead) {
  const auto spec = read_gguf(
      gguf_values(), {tensor("token_embd.weight", {120, 48}), tensor("output.weight", {120, 48})});
  ASSERT_TRUE(spec.ok()) << spec.status();
  expect_common_sizes(*spec);
  EXPECT_EQ(spec->architecture, "llama");
  EXPECT_FALSE(spec->tied);
}

TEST(ModelSpecGguf, WithoutAnOutputMatrixTheEmbeddingIsIt) {
  const auto spec = read_gguf(gguf_values());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->tied);
}

TEST(ModelSpecGguf, AbsentKeysHaveTheDefaultsOfLlama) {
  Values values = without(gguf_values(), "llama.attention.head_count_kv");
  values = without(without(values, "llama.rope.freq_base"), "llama.rope.dimension_count");
  const auto spec = read_gguf(without(values, "tokenizer.ggml.eos_token_id"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->kv_heads, 6);
  EXPECT_EQ(spec->rope.theta, 10000.0);
  EXPECT_THAT(spec->end_tokens, IsEmpty());
}

TEST(ModelSpecGguf, TheKeyLengthIsTheHeadSize) {
  const Values wide = changed(gguf_values(), {{"llama.attention.key_length", std::int64_t{16}},
                                              {"llama.rope.dimension_count", std::int64_t{16}}});
  const auto spec = read_gguf(wide);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->head_dim, 16);
}

TEST(ModelSpecGguf, EveryRequiredKeyIsNamedWhenItIsAbsent) {
  for (const std::string key :
       {"general.architecture", "llama.block_count", "llama.embedding_length",
        "llama.attention.head_count", "llama.feed_forward_length", "llama.context_length",
        "llama.attention.layer_norm_rms_epsilon"}) {
    expect_refused(read_gguf(without(gguf_values(), key)), absl::StatusCode::kNotFound, key);
  }
}

TEST(ModelSpecGguf, WhatIsNotImplementedIsRefusedByName) {
  expect_gguf_refused({{"general.architecture", std::string("mamba")}}, kUnimplemented, "'mamba'");
  expect_gguf_refused({{"llama.expert_count", std::int64_t{8}}}, kUnimplemented,
                      "mixture-of-experts");
  expect_gguf_refused({{"llama.rope.dimension_count", std::int64_t{4}}}, kUnimplemented,
                      "llama.rope.dimension_count");
  expect_gguf_refused({{"llama.rope.scaling.type", std::string("yarn")}}, kUnimplemented,
                      "llama.rope.scaling.type 'yarn'");
  EXPECT_TRUE(read_gguf(changed(gguf_values(), {{"llama.expert_count", std::int64_t{0}},
                                                {"llama.rope.scaling.type", std::string("none")}}))
                  .ok());
}

TEST(ModelSpecGguf, SizesThatDoNotFitTogetherAreRefused) {
  expect_gguf_refused({{"llama.attention.head_count_kv", std::int64_t{4}}}, kInvalid,
                      "KV heads (4)");
  expect_gguf_refused({{"llama.attention.key_length", std::int64_t{7}},
                       {"llama.rope.dimension_count", std::int64_t{7}}},
                      kInvalid, "head size 7");
  // Without a stated rotation, so that the head size itself is what is refused.
  expect_refused(read_gguf(changed(without(gguf_values(), "llama.rope.dimension_count"),
                                   {{"llama.embedding_length", std::int64_t{4}}})),
                 kInvalid, "head size 0");
  expect_gguf_refused({{"llama.attention.head_count", Ints{6, 6, 6}}}, kInvalid,
                      "llama.attention.head_count");
}

TEST(ModelSpecGguf, TheEmbeddingMustBeAMatrixOfAPossibleSize) {
  const std::string words = "token_embd.weight";
  expect_refused(read_gguf(gguf_values(), {}), kInvalid, words);
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{120}, std::vector<std::int64_t>{120, 48, 1},
        std::vector<std::int64_t>{0, 48}, std::vector<std::int64_t>{(1 << 24) + 1, 48}}) {
    expect_refused(read_gguf(gguf_values(), {tensor("token_embd.weight", shape)}), kInvalid, words);
  }
}

TEST(ModelSpecGguf, AnEndTokenOutsideTheVocabularyIsRefused) {
  expect_gguf_refused({{"tokenizer.ggml.eos_token_id", std::int64_t{120}}}, kInvalid,
                      "tokenizer.ggml.eos_token_id names token 120");
}

TEST(ModelSpec, ParametersCountATiedEmbeddingOnce) {
  ModelSpec spec = *read_hf(hf_values());
  // q and output: 48 x 48, k and v: 48 x 16, three of the MLP: 48 x 96, two norms: 48.
  const std::int64_t layer = 2 * 48 * 48 + 2 * 48 * 16 + 3 * 48 * 96 + 2 * 48;
  EXPECT_EQ(spec.parameters(), 3 * layer + 2 * 120 * 48 + 48);
  spec.tied = true;
  EXPECT_EQ(spec.parameters(), 3 * layer + 120 * 48 + 48);
}

}  // namespace
}  // namespace hisparse::model
