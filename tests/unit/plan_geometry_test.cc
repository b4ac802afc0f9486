// What the planner reads from a config.json, against the published figures of each model.
#include <string>
#include <vector>

#include "plan/cache.h"
#include "plan/field_reader.h"
#include "plan/weights.h"
#include "tests/unit/plan_fixture.h"

namespace hisparse::plan {
namespace {

using testing::HasSubstr;

constexpr double kBillion = 1e9;

TokenRows rows_of(const Fields& fields, RowType rows, std::int32_t ranks, Mtp mtp = Mtp::kOff) {
  return token_rows(cache_groups(geometry(fields), ranks, rows, mtp), ranks);
}

void expect_error(const Fields& fields, const std::string& words) {
  const absl::StatusOr<ModelGeometry> result = read(fields);
  ASSERT_FALSE(result.ok()) << words;
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(words));
}

Fields with(Fields fields, const std::string& key, const std::string& value) {
  fields[key] = value;
  return fields;
}

Fields without(Fields fields, const std::string& key) {
  fields.erase(key);
  return fields;
}

// models.md 6.2: a row is one line of its table.
struct RowBytes {
  const char* name;
  Fields fields;
  std::int64_t layers;
  std::vector<std::int64_t> bf16_by_ranks;  // a layer that has everything, ranks 1, 2, 4, 8
  std::int64_t bf16_all;
  std::int64_t fp8_layer;  // over all ranks of TP8, replicated rows once
  std::int64_t fp8_rank;   // a layer on one rank of TP8
  std::int64_t fp8_all;
};

std::int64_t layer_bytes(const std::vector<PlannedGroup>& groups) {
  std::int64_t bytes = 0;
  for (const PlannedGroup& planned : groups) {
    for (const kv::Plane& plane : planned.group.planes) bytes += plane.row_bytes;
  }
  return bytes;
}

TEST(PlanGeometry, RowBytesAreThoseOfTheReferenceTable) {
  const RowBytes table[] = {
      {"Llama-3-8B", llama3_8b(), 32, {4096, 2048, 1024, 512}, 131'072, 2048, 256, 65'536},
      {"Qwen2-72B", qwen2_72b(), 80, {4096, 2048, 1024, 512}, 327'680, 2048, 256, 163'840},
      {"GLM-4.6", glm_4_6(), 92, {4096, 2048, 1024, 512}, 376'832, 2048, 256, 188'416},
      {"GLM-5.1", glm_5_1(), 78, {1284, 1284, 1284, 1284}, 100'152, 788, 788, 61'464},
      {"GLM-5.3", glm_5_3(), 78, {1284, 1284, 1284, 1284}, 92'628, 788, 788, 53'940},
      {"DeepSeek-V3.2", deepseek_v3_2(), 61, {1284, 1284, 1284, 1284}, 78'324, 788, 788, 48'068}};
  for (const RowBytes& line : table) {
    SCOPED_TRACE(line.name);
    const ModelGeometry model = geometry(line.fields);
    EXPECT_EQ(model.layers, line.layers);
    std::int32_t ranks = 1;
    for (const std::int64_t bytes : line.bf16_by_ranks) {
      EXPECT_EQ(layer_bytes(cache_groups(model, ranks, RowType::kBf16, Mtp::kOff)), bytes) << ranks;
      ranks *= 2;
    }
    EXPECT_EQ(rows_of(line.fields, RowType::kBf16, 1).rank(), line.bf16_all);
    EXPECT_EQ(rows_of(line.fields, RowType::kFp8, 1).rank(), line.fp8_all);
    const auto groups = cache_groups(model, 8, RowType::kFp8, Mtp::kOff);
    EXPECT_EQ(layer_bytes(groups), line.fp8_rank);
    const bool replicated = groups.front().group.sharding == kv::Sharding::kReplicated;
    EXPECT_EQ(layer_bytes(groups) * (replicated ? 1 : 8), line.fp8_layer);
  }
}

// hisparse.md 5.2, by group.
TEST(PlanGeometry, Glm5RowsByGroup) {
  EXPECT_EQ(rows_of(glm_5_3(), RowType::kFp8, 8).spills, 51'168);
  EXPECT_EQ(rows_of(glm_5_3(), RowType::kBf16, 8).spills, 89'856);
  EXPECT_EQ(rows_of(glm_5_1(), RowType::kFp8, 8).stays, 10'296);
  EXPECT_EQ(rows_of(glm_5_3(), RowType::kFp8, 8).stays, 2'772);
  EXPECT_EQ(rows_of(glm_5_3(), RowType::kBf16, 8).stays, 2'772);
  // One copy in host memory serves every rank.
  EXPECT_EQ(rows_of(glm_5_3(), RowType::kFp8, 8).host, 51'168);
  EXPECT_EQ(rows_of(llama3_8b(), RowType::kBf16, 8).host, 131'072);
}

// kv_science.md section 0, point 2.
TEST(PlanGeometry, AnMtpLayerAddsALatentAndAnIndexKey) {
  EXPECT_EQ(rows_of(glm_5_3(), RowType::kFp8, 8, Mtp::kOff).rank(), 53'940);
  EXPECT_EQ(rows_of(glm_5_3(), RowType::kFp8, 8, Mtp::kOn).rank(), 54'728);
  EXPECT_EQ(rows_of(glm_5_3(), RowType::kFp8, 8, Mtp::kOn).stays, 2'904);
  EXPECT_EQ(rows_of(glm_4_6(), RowType::kBf16, 1, Mtp::kOn).rank(), 93 * 4096);
}

TEST(PlanGeometry, MoreRanksThanKvHeadsRepeatThem) {
  EXPECT_EQ(rows_of(llama3_8b(), RowType::kBf16, 16).rank(), 32 * 2 * 128 * 2);
  EXPECT_EQ(rows_of(llama3_8b(), RowType::kBf16, 16).host, 2 * 131'072);
}

TEST(PlanGeometry, TheIndexerScheduleOfGlm52HasTwentyOneFullLayers) {
  EXPECT_EQ(geometry(glm_5_3()).indexer.layers, 21);
  EXPECT_EQ(geometry(glm_5_1()).indexer.layers, 78);
  EXPECT_EQ(geometry(deepseek_v3_2()).indexer.layers, 61);
  EXPECT_EQ(indexed_layers(8, 4, 3), 4);  // 0, 1, 2, 6
  std::string pattern = "FFF";
  for (int i = 0; i < 18; ++i) pattern += "SSSF";
  pattern += "SSS";
  EXPECT_EQ(geometry(with(glm_5_1(), "index_topk_pattern", '"' + pattern + '"')).indexer.layers,
            21);
  // With the MTP layer behind.
  EXPECT_EQ(geometry(with(glm_5_1(), "index_topk_pattern", '"' + pattern + "F\"")).indexer.layers,
            21);
  Fields small = with(with(glm_5_1(), "num_hidden_layers", "6"), "index_topk_freq", "2");
  small["indexer_types"] = R"(["full","full","shared","shared","full","shared"])";
  EXPECT_EQ(geometry(small).indexer.layers, 3);  // the list wins over the frequency
}

TEST(PlanGeometry, ABadScheduleIsRefused) {
  expect_error(with(glm_5_1(), "index_topk_pattern", "\"FFS\""), "each of the 78 layers");
  expect_error(with(glm_5_1(), "index_topk_pattern", "7"), "index_topk_pattern");
  expect_error(with(glm_5_1(), "index_topk_pattern", '"' + std::string(78, 'S') + '"'),
               "full for the first");
  expect_error(with(glm_5_1(), "indexer_types", "[]"), "indexer_types");
  expect_error(with(glm_5_1(), "index_topk_freq", "0"), "index_topk_freq");
}

std::vector<WeightGroup> groups_of(const Fields& fields, Mtp mtp, std::int32_t ranks = 1) {
  return weight_groups(geometry(fields), ranks, mtp);
}

// hisparse.md 5.1: 744B in all, about 40B active. The others as published.
TEST(PlanWeights, ParameterCountsAreThePublishedOnes) {
  const auto billions = [](const Fields& fields, Mtp mtp) {
    return static_cast<double>(parameters(groups_of(fields, mtp))) / kBillion;
  };
  const auto active = [](const Fields& fields) {
    return active_parameters(groups_of(fields, Mtp::kOff), geometry(fields).experts) / kBillion;
  };
  EXPECT_NEAR(billions(llama3_8b(), Mtp::kOff), 8.03, 0.01);
  EXPECT_NEAR(billions(qwen2_72b(), Mtp::kOff), 72.7, 0.1);
  EXPECT_NEAR(billions(glm_4_6(), Mtp::kOff), 353, 1);
  EXPECT_NEAR(billions(glm_4_6(), Mtp::kOn), 357, 1);
  EXPECT_NEAR(billions(glm_5_1(), Mtp::kOff), 744, 1);
  EXPECT_NEAR(billions(glm_5_3(), Mtp::kOff), 743, 1);
  EXPECT_NEAR(billions(glm_5_3(), Mtp::kOn), 753.4, 1);
  EXPECT_NEAR(billions(deepseek_v3_2(), Mtp::kOff), 671, 1.5);
  EXPECT_NEAR(billions(deepseek_v3_2(), Mtp::kOn), 685, 1.5);
  EXPECT_NEAR(active(glm_5_3()), 40, 1);
  EXPECT_NEAR(active(glm_4_6()), 32, 1);
  EXPECT_NEAR(active(deepseek_v3_2()), 37, 1);
}

// hisparse.md 5.1: the fp8 checkpoint has 755 GB; about 90.7 GiB of weights a rank at TP8.
TEST(PlanWeights, Fp8BytesAreThoseOfTheCheckpoint) {
  const ModelGeometry model = geometry(glm_5_3());
  const WeightBytes bytes =
      weight_bytes(groups_of(glm_5_3(), Mtp::kOn, 8), model.stored, WeightFormat::kFp8Blocks);
  EXPECT_NEAR(static_cast<double>(bytes.whole) / kBillion, 755, 2);
  EXPECT_NEAR(static_cast<double>(bytes.rank) / (1 << 30), 90.7, 0.02 * 90.7);
  // Replicated parts are more than an eighth.
  EXPECT_GT(bytes.rank, bytes.whole / 8);
}

TEST(PlanWeights, ScalesCountOnlyWhereBlocksHaveThem) {
  StoredWeights stored = geometry(llama3_8b()).stored;
  const auto groups = groups_of(llama3_8b(), Mtp::kOff);
  const auto bf16 = weight_bytes(groups, stored, WeightFormat::kBf16).whole;
  EXPECT_EQ(bf16, 2 * parameters(groups));
  EXPECT_EQ(weight_bytes(groups, stored, WeightFormat::kF32).whole, 2 * bf16);
  const std::int64_t plain = weight_bytes(groups, stored, WeightFormat::kFp8Blocks).whole;
  stored.block_values = 128 * 128;
  const std::int64_t scaled = weight_bytes(groups, stored, WeightFormat::kFp8Blocks).whole;
  const std::int64_t wide = 2 * std::int64_t{128'256} * 4096 + (2 * 32 + 1) * 4096;
  EXPECT_EQ(plain, parameters(groups) + wide);
  EXPECT_NEAR(static_cast<double>(scaled - plain),
              static_cast<double>(parameters(groups) - wide) / 4096, 1.0);
}

TEST(PlanWeights, AFileWithItsOwnBytesKeepsThem) {
  StoredWeights stored = geometry(llama3_8b()).stored;
  stored.bytes = 5'000'000'000;
  const auto groups = groups_of(llama3_8b(), Mtp::kOff, 8);
  const WeightBytes bytes = weight_bytes(groups, stored, WeightFormat::kBf16);
  EXPECT_EQ(bytes.whole, 5'000'000'000);
  EXPECT_NEAR(static_cast<double>(bytes.rank), 5e9 / 8, 1e6);
}

TEST(PlanWeights, RanksShareTheMatricesAndRepeatKvHeads) {
  const auto of_rank = [](std::int32_t ranks) {
    std::int64_t sum = 0;
    for (const WeightGroup& group : groups_of(llama3_8b(), Mtp::kOff, ranks)) sum += group.rank;
    return sum;
  };
  const std::int64_t whole = parameters(groups_of(llama3_8b(), Mtp::kOff));
  const std::int64_t norms = (2 * 32 + 1) * 4096;
  EXPECT_EQ(of_rank(1), whole);
  EXPECT_EQ(of_rank(8), (whole - norms) / 8 + norms);
  // Sixteen ranks, eight KV heads: K and V are there twice.
  const std::int64_t kv = std::int64_t{32} * 4096 * 128 * 2 * 8;
  EXPECT_EQ(of_rank(16), (whole - norms + kv) / 16 + norms);
}

TEST(PlanWeights, ATiedTableCountsOnce) {
  const std::int64_t table = std::int64_t{128'256} * 4096;
  const Fields tied = with(llama3_8b(), "tie_word_embeddings", "true");
  EXPECT_EQ(parameters(groups_of(llama3_8b(), Mtp::kOff)) - parameters(groups_of(tied, Mtp::kOff)),
            table);
  EXPECT_EQ(active_parameters(groups_of(tied, Mtp::kOff), {}),
            active_parameters(groups_of(llama3_8b(), Mtp::kOff), {}));
}

TEST(PlanWeights, AStepReadsTheExpertsThatItsTokensChoose) {
  const ModelGeometry model = geometry(glm_5_3());
  const auto groups = groups_of(glm_5_3(), Mtp::kOff, 8);
  const auto step = [&](double tokens) {
    return step_weight_bytes(groups, model, WeightFormat::kFp8Blocks, tokens);
  };
  // About 5 GB on each of 8 GPUs for one token (hisparse.md 5.3), and the replicated parts.
  EXPECT_NEAR(step(1) / kBillion, 6.0, 1.0);
  EXPECT_LT(step(8), 8 * step(1));
  const double all =
      static_cast<double>(weight_bytes(groups, model.stored, WeightFormat::kFp8Blocks).rank);
  EXPECT_NEAR(step(1e6), all, 0.01 * all);
}

TEST(PlanGeometry, UnknownArchitecturesAreRefusedWithTheKnownOnes) {
  const Fields flash = with(glm_5_3(), "architectures", R"(["Glm5NextForConditionalGeneration"])");
  expect_error(flash, "Glm5NextForConditionalGeneration");
  expect_error(flash, "GlmMoeDsaForCausalLM (GLM-5 to 5.3)");
  expect_error(flash, "DeepseekV32ForCausalLM");
  expect_error(with(glm_5_3(), "architectures", "[]"), "known are");
  expect_error(without(glm_5_3(), "architectures"), "architectures");
}

TEST(PlanGeometry, ASizeThatIsMissingOrAbsurdIsNamed) {
  for (const char* key :
       {"num_hidden_layers", "hidden_size", "kv_lora_rank", "index_topk", "moe_intermediate_size",
        "num_experts_per_tok", "vocab_size", "max_position_embeddings", "first_k_dense_replace"}) {
    expect_error(without(glm_5_3(), key), key);
    expect_error(with(glm_5_3(), key, "-1"), key);
    expect_error(with(glm_5_3(), key, "1000000000000"), key);
    expect_error(with(glm_5_3(), key, "\"8\""), key);
    expect_error(with(glm_5_3(), key, "8.0"), key);
  }
  for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads", "kv_lora_rank",
                          "index_topk", "n_routed_experts", "vocab_size"}) {
    expect_error(with(glm_5_3(), key, "0"), key);
  }
  expect_error(with(glm_5_3(), "num_hidden_layers", std::to_string(kMaxLayers + 1)),
               "num_hidden_layers is 1025, outside 1 to 1024");
  expect_error(with(glm_5_3(), "n_routed_experts", std::to_string(kMaxExperts + 1)),
               "n_routed_experts");
  expect_error(with(llama3_8b(), "num_key_value_heads", "5"), "does not divide");
  expect_error(with(with(llama3_8b(), "num_attention_heads", "4096"), "head_dim", "4096"),
               "wider than");
  expect_error(with(glm_5_3(), "num_experts_per_tok", "257"), "num_experts_per_tok");
  expect_error(with(glm_5_3(), "moe_layer_freq", "2"), "moe_layer_freq");
  expect_error(with(qwen2_72b(), "use_sliding_window", "true"), "use_sliding_window");
  expect_error(with(glm_5_3(), "mlp_layer_types", R"(["dense"])"), "mlp_layer_types");
}

TEST(PlanGeometry, TheLargestSizesStayWithin64Bits) {
  Fields fields = glm_5_3();
  const auto set = [&fields](const char* key, std::int64_t value) {
    fields[key] = std::to_string(value);
  };
  set("num_hidden_layers", kMaxLayers);
  set("hidden_size", kMaxWidth);
  set("num_attention_heads", kMaxHeads);
  set("q_lora_rank", kMaxWidth);
  set("kv_lora_rank", kMaxHeadSize);
  set("qk_nope_head_dim", kMaxHeadSize);
  set("qk_rope_head_dim", kMaxHeadSize);
  set("v_head_dim", kMaxHeadSize);
  set("index_n_heads", kMaxHeads);
  set("index_head_dim", kMaxHeadSize);
  set("intermediate_size", kMaxWidth);
  set("moe_intermediate_size", kMaxWidth);
  set("n_routed_experts", kMaxExperts);
  set("num_experts_per_tok", kMaxExperts);
  set("n_shared_experts", kMaxExperts);
  set("first_k_dense_replace", 0);
  set("num_nextn_predict_layers", kMaxMtpLayers);
  set("vocab_size", kMaxVocabulary);
  const auto groups = groups_of(fields, Mtp::kOn);
  double sum = 0.0;
  for (const WeightGroup& group : groups) sum += static_cast<double>(group.parameters);
  EXPECT_NEAR(static_cast<double>(parameters(groups)), sum, 1e-6 * sum);
  const double bytes =
      static_cast<double>(weight_bytes(groups, geometry(fields).stored, WeightFormat::kF32).whole);
  EXPECT_NEAR(bytes, 4.0 * sum, 1e-6 * bytes);
}

TEST(PlanGeometry, StoredFormatsAreReadOrNamed) {
  EXPECT_EQ(geometry(llama3_8b()).stored.format, WeightFormat::kBf16);
  EXPECT_EQ(geometry(glm_5_3()).stored.format, WeightFormat::kFp8Blocks);
  EXPECT_EQ(geometry(glm_5_3()).stored.block_values, 128 * 128);
  EXPECT_EQ(geometry(without(glm_5_3(), "quantization_config")).stored.format, WeightFormat::kBf16);
  EXPECT_EQ(geometry(with(llama3_8b(), "torch_dtype", "\"float32\"")).stored.format,
            WeightFormat::kF32);
  const auto modelopt =
      geometry(with(glm_5_3(), "quantization_config", R"({"quant_method":"modelopt"})")).stored;
  EXPECT_FALSE(modelopt.format.has_value());
  EXPECT_EQ(modelopt.name, "modelopt");
  expect_error(
      with(glm_5_3(), "quantization_config", R"({"quant_method":"fp8","weight_block_size":[128]})"),
      "weight_block_size");
  expect_error(with(glm_5_3(), "quantization_config",
                    R"({"quant_method":"fp8","weight_block_size":[0,128]})"),
               "weight_block_size");
}

TEST(PlanGeometry, GpusThatDoNotDivideTheModelAreRefusedWithThoseThatDo) {
  EXPECT_TRUE(check_ranks(geometry(glm_5_3()), 8).ok());
  const absl::Status status = check_ranks(geometry(glm_5_3()), 7);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1, 2, 4, 8, 16, 32, 64"));
}

}  // namespace
}  // namespace hisparse::plan
