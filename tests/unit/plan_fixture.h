// The config.json of the models of reference/models.md sections 1.1 and 2, and plans made from
// them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "format/json_metadata.h"
#include "plan/capacity.h"
#include "plan/geometry.h"

namespace hisparse::plan {

// Key to JSON value.
using Fields = std::map<std::string, std::string>;

inline std::string json_of(const Fields& fields) {
  std::string text = "{";
  for (const auto& [key, value] : fields) {
    text += std::string(text.size() > 1 ? "," : "") + '"' + key + "\":" + value;
  }
  return text + "}";
}

inline absl::StatusOr<ModelGeometry> read(const Fields& fields) {
  auto values = format::parse_json_metadata(json_of(fields), "config.json", "");
  if (!values.ok()) return values.status();
  return read_geometry(format::Metadata(*std::move(values)));
}

inline ModelGeometry geometry(const Fields& fields) {
  const absl::StatusOr<ModelGeometry> result = read(fields);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : ModelGeometry();
}

inline Fields llama3_8b() {
  return {{"architectures", R"(["LlamaForCausalLM"])"},
          {"num_hidden_layers", "32"},
          {"hidden_size", "4096"},
          {"num_attention_heads", "32"},
          {"num_key_value_heads", "8"},
          {"intermediate_size", "14336"},
          {"vocab_size", "128256"},
          {"max_position_embeddings", "8192"},
          {"torch_dtype", R"("bfloat16")"}};
}

inline Fields qwen2_72b() {
  return {{"architectures", R"(["Qwen2ForCausalLM"])"},
          {"num_hidden_layers", "80"},
          {"hidden_size", "8192"},
          {"num_attention_heads", "64"},
          {"num_key_value_heads", "8"},
          {"intermediate_size", "29568"},
          {"vocab_size", "152064"},
          {"max_position_embeddings", "131072"},
          {"use_sliding_window", "false"},
          {"torch_dtype", R"("bfloat16")"}};
}

inline Fields glm_4_6() {
  return {{"architectures", R"(["Glm4MoeForCausalLM"])"},
          {"num_hidden_layers", "92"},
          {"hidden_size", "5120"},
          {"num_attention_heads", "96"},
          {"num_key_value_heads", "8"},
          {"head_dim", "128"},
          {"intermediate_size", "12288"},
          {"moe_intermediate_size", "1536"},
          {"n_routed_experts", "160"},
          {"num_experts_per_tok", "8"},
          {"n_shared_experts", "1"},
          {"first_k_dense_replace", "3"},
          {"num_nextn_predict_layers", "1"},
          {"vocab_size", "151552"},
          {"max_position_embeddings", "202752"},
          {"dtype", R"("bfloat16")"}};
}

inline Fields glm_5_1() {
  return {{"architectures", R"(["GlmMoeDsaForCausalLM"])"},
          {"num_hidden_layers", "78"},
          {"hidden_size", "6144"},
          {"num_attention_heads", "64"},
          {"num_key_value_heads", "64"},
          {"head_dim", "192"},
          {"q_lora_rank", "2048"},
          {"kv_lora_rank", "512"},
          {"qk_nope_head_dim", "192"},
          {"qk_rope_head_dim", "64"},
          {"v_head_dim", "256"},
          {"index_n_heads", "32"},
          {"index_head_dim", "128"},
          {"index_topk", "2048"},
          {"intermediate_size", "12288"},
          {"moe_intermediate_size", "2048"},
          {"n_routed_experts", "256"},
          {"num_experts_per_tok", "8"},
          {"n_shared_experts", "1"},
          {"first_k_dense_replace", "3"},
          {"moe_layer_freq", "1"},
          {"num_nextn_predict_layers", "1"},
          {"vocab_size", "154880"},
          {"max_position_embeddings", "202752"},
          {"tie_word_embeddings", "false"},
          {"q_lora_unused", "null"},
          {"dtype", R"("bfloat16")"},
          {"quantization_config",
           R"({"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,128]})"}};
}

inline Fields glm_5_3() {
  Fields fields = glm_5_1();
  fields["max_position_embeddings"] = "1048576";
  fields["index_topk_freq"] = "4";
  fields["index_skip_topk_offset"] = "3";
  return fields;
}

inline Fields deepseek_v3_2() {
  Fields fields = glm_5_1();
  fields["architectures"] = R"(["DeepseekV32ForCausalLM"])";
  fields["num_hidden_layers"] = "61";
  fields["hidden_size"] = "7168";
  fields["num_attention_heads"] = "128";
  fields["q_lora_rank"] = "1536";
  fields["qk_nope_head_dim"] = "128";
  fields["v_head_dim"] = "128";
  fields["index_n_heads"] = "64";
  fields["intermediate_size"] = "18432";
  fields["vocab_size"] = "129280";
  fields["max_position_embeddings"] = "163840";
  return fields;
}

// 8xH200 with the 30 GiB of KV on each that hisparse.md 5.4 assumes.
inline GpuRequest assumed_request(const Fields& fields) {
  GpuRequest request;
  request.geometry = geometry(fields);
  request.machine = *parse_machine("8xH200");
  request.weights = WeightFormat::kFp8Blocks;
  request.rows = RowType::kFp8;
  request.kv_bytes = 8 * (std::int64_t{30} << 30);
  return request;
}

}  // namespace hisparse::plan
