#include "plan/geometry.h"

#include <algorithm>
#include <string_view>

#include "base/status.h"
#include "format/untrusted_text.h"
#include "plan/field_reader.h"

namespace hisparse::plan {
namespace {

constexpr std::int64_t kMaxBlock = 4096;

void read_stored(FieldReader& fields, StoredWeights& stored) {
  // transformers writes "dtype" since version 5, "torch_dtype" before.
  const std::string type =
      fields.text_or("dtype", fields.text_or("torch_dtype", std::string("bfloat16")));
  stored.name = type;
  if (type == "float32") stored.format = WeightFormat::kF32;
  if (type == "bfloat16" || type == "float16") stored.format = WeightFormat::kBf16;
  const std::string method = fields.text_or("quantization_config.quant_method", "");
  if (method.empty()) return;
  stored.name = method;
  stored.format.reset();
  if (method != "fp8") return;
  stored.format = WeightFormat::kFp8Blocks;
  constexpr std::string_view kBlockKey = "quantization_config.weight_block_size";
  if (!fields.metadata().has(kBlockKey)) return;
  const auto block = fields.metadata().get_ints(kBlockKey);
  if (!block.ok()) return fields.fail(block.status());
  const std::vector<std::int64_t>& sides = **block;
  const auto valid = [](std::int64_t side) { return side >= 1 && side <= kMaxBlock; };
  if (sides.size() != 2 || !valid(sides[0]) || !valid(sides[1])) {
    return fields.fail(absl::InvalidArgumentError(
        std::string(kBlockKey) + " must be two sizes of 1 to " + std::to_string(kMaxBlock)));
  }
  stored.block_values = sides[0] * sides[1];
}

void read_common(FieldReader& fields, ModelGeometry& geometry) {
  geometry.layers = fields.positive("num_hidden_layers", kMaxLayers);
  geometry.hidden = fields.positive("hidden_size", kMaxWidth);
  geometry.heads = fields.positive("num_attention_heads", kMaxHeads);
  geometry.dense_width = fields.positive("intermediate_size", kMaxWidth);
  geometry.vocabulary = fields.positive("vocab_size", kMaxVocabulary);
  geometry.max_position = fields.positive("max_position_embeddings", kMaxPosition);
  geometry.tied = fields.flag_or("tie_word_embeddings", false);
  read_stored(fields, geometry.stored);
}

void read_grouped(FieldReader& fields, ModelGeometry& geometry) {
  geometry.attention = Attention::kGrouped;
  geometry.kv_heads = fields.positive_or("num_key_value_heads", geometry.heads, kMaxHeads);
  geometry.head_dim = fields.positive_or(
      "head_dim", std::max<std::int64_t>(geometry.hidden / geometry.heads, 1), kMaxHeadSize);
  if (geometry.heads % geometry.kv_heads != 0) {
    fields.fail(absl::InvalidArgumentError(
        "num_key_value_heads (" + std::to_string(geometry.kv_heads) +
        ") does not divide num_attention_heads (" + std::to_string(geometry.heads) + ")"));
  }
  if (geometry.heads * geometry.head_dim > kMaxAllHeads) {
    fields.fail(absl::InvalidArgumentError("the heads together are wider than " +
                                           std::to_string(kMaxAllHeads)));
  }
  if (fields.flag_or("use_sliding_window", false)) {
    fields.fail(absl::UnimplementedError(
        "use_sliding_window is true: layers that forget old rows are not planned"));
  }
}

// "dense" and "sparse" for each layer, or a number of dense layers in front.
std::int64_t layers_with_experts(FieldReader& fields, const ModelGeometry& geometry) {
  if (fields.metadata().has("mlp_layer_types")) {
    const auto types = fields.metadata().get_strings("mlp_layer_types");
    if (!types.ok()) {
      fields.fail(types.status());
      return 0;
    }
    const std::int64_t sparse = std::count((*types)->begin(), (*types)->end(), "sparse");
    const std::int64_t dense = std::count((*types)->begin(), (*types)->end(), "dense");
    if (sparse + dense == static_cast<std::int64_t>((*types)->size()) &&
        sparse + dense == geometry.layers) {
      return sparse;
    }
    fields.fail(
        absl::InvalidArgumentError("mlp_layer_types must be 'dense' or 'sparse' for each of the " +
                                   std::to_string(geometry.layers) + " layers"));
    return 0;
  }
  if (fields.positive_or("moe_layer_freq", 1, kMaxLayers) != 1) {
    fields.fail(absl::UnimplementedError("moe_layer_freq is not 1"));
  }
  // The default of an absent key differs from class to class.
  return std::max<std::int64_t>(geometry.layers - fields.count("first_k_dense_replace", kMaxLayers),
                                0);
}

void read_experts(FieldReader& fields, ModelGeometry& geometry) {
  ExpertShape& experts = geometry.experts;
  experts.layers = layers_with_experts(fields, geometry);
  experts.experts = fields.positive(
      fields.metadata().has("n_routed_experts") ? "n_routed_experts" : "num_experts", kMaxExperts);
  experts.per_token = fields.positive("num_experts_per_tok", kMaxExperts);
  experts.shared = fields.count_or("n_shared_experts", 0, kMaxExperts);
  experts.width = fields.positive("moe_intermediate_size", kMaxWidth);
  if (experts.per_token > experts.experts) {
    fields.fail(absl::InvalidArgumentError("num_experts_per_tok is more than n_routed_experts"));
  }
  geometry.mtp_layers = fields.count_or("num_nextn_predict_layers", 0, kMaxMtpLayers);
}

// A list entry or a character for each layer; the MTP layers may stand behind them.
std::int64_t count_full(FieldReader& fields, std::string_view key,
                        const std::vector<std::string>& names, const ModelGeometry& geometry) {
  const auto layers = static_cast<std::size_t>(geometry.layers);
  const auto is_full = [](const std::string& name) { return name == "full" || name == "F"; };
  const auto is_shared = [](const std::string& name) { return name == "shared" || name == "S"; };
  const bool known = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return is_full(name) || is_shared(name);
  });
  const bool fits = names.size() == layers ||
                    names.size() == layers + static_cast<std::size_t>(geometry.mtp_layers);
  if (!known || !fits || !is_full(names.front())) {
    fields.fail(absl::InvalidArgumentError(std::string(key) +
                                           " must say full or shared (F or S) for each of the " +
                                           std::to_string(layers) + " layers, full for the first"));
    return 0;
  }
  return std::count_if(names.begin(), names.begin() + geometry.layers, is_full);
}

std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> result;
  for (const char letter : text) result.emplace_back(1, letter);
  return result;
}

// models.md 1.5, "Shared layers": the list, the pattern, or the frequency.
std::int64_t read_indexed_layers(FieldReader& fields, const ModelGeometry& geometry) {
  for (const std::string_view key : {"indexer_types", "index_topk_pattern"}) {
    const format::MetadataValue* value = fields.metadata().find(key);
    if (value == nullptr) continue;
    if (const auto* text = std::get_if<std::string>(value)) {
      return count_full(fields, key, characters(*text), geometry);
    }
    const auto names = fields.metadata().get_strings(key);
    if (names.ok()) return count_full(fields, key, **names, geometry);
    fields.fail(names.status());
    return 0;
  }
  const std::int64_t frequency = fields.positive_or("index_topk_freq", 1, kMaxLayers);
  const std::int64_t offset = fields.count_or("index_skip_topk_offset", 2, kMaxLayers);
  return indexed_layers(geometry.layers, frequency, offset);
}

void read_sparse(FieldReader& fields, ModelGeometry& geometry) {
  geometry.attention = Attention::kLatentSparse;
  geometry.latent = {.query_rank = fields.positive("q_lora_rank", kMaxWidth),
                     .latent = fields.positive("kv_lora_rank", kMaxHeadSize),
                     .nope = fields.positive("qk_nope_head_dim", kMaxHeadSize),
                     .rope = fields.positive("qk_rope_head_dim", kMaxHeadSize),
                     .value = fields.positive("v_head_dim", kMaxHeadSize)};
  geometry.indexer.heads = fields.positive("index_n_heads", kMaxHeads);
  geometry.indexer.dim = fields.positive("index_head_dim", kMaxHeadSize);
  geometry.indexer.top_k = fields.positive("index_topk", kMaxPosition);
  geometry.indexer.layers = read_indexed_layers(fields, geometry);
}

void read_dense_model(FieldReader& fields, ModelGeometry& geometry) {
  read_grouped(fields, geometry);
}

void read_expert_model(FieldReader& fields, ModelGeometry& geometry) {
  read_grouped(fields, geometry);
  read_experts(fields, geometry);
}

void read_sparse_model(FieldReader& fields, ModelGeometry& geometry) {
  read_experts(fields, geometry);
  read_sparse(fields, geometry);
}

struct KnownArchitecture {
  const char* name;
  const char* models;
  void (*read)(FieldReader& fields, ModelGeometry& geometry);
};

constexpr KnownArchitecture kKnown[] = {
    {"LlamaForCausalLM", "Llama 2 and 3", read_dense_model},
    {"Qwen2ForCausalLM", "Qwen2, Qwen2.5", read_dense_model},
    {"Glm4MoeForCausalLM", "GLM-4.5 to 4.7", read_expert_model},
    {"GlmMoeDsaForCausalLM", "GLM-5 to 5.3", read_sparse_model},
    {"DeepseekV32ForCausalLM", "DeepSeek-V3.2", read_sparse_model},
};

absl::Status unknown_architecture(const std::string& name) {
  std::string known;
  for (const KnownArchitecture& architecture : kKnown) {
    known += std::string(known.empty() ? "" : ", ") + architecture.name + " (" +
             architecture.models + ")";
  }
  return absl::UnimplementedError("architecture " + format::in_quotes(name) +
                                  " is not known to the planner; known are " + known);
}

}  // namespace

std::int64_t indexed_layers(std::int64_t layers, std::int64_t frequency, std::int64_t offset) {
  std::int64_t full = 0;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    if (std::max<std::int64_t>(layer - offset + 1, 0) % frequency == 0) ++full;
  }
  return full;
}

absl::StatusOr<ModelGeometry> read_geometry(const format::Metadata& config) {
  HS_ASSIGN_OR_RETURN(const auto* architectures, config.get_strings("architectures"));
  const std::string name = architectures->empty() ? "(none)" : architectures->front();
  const auto* known = std::find_if(
      std::begin(kKnown), std::end(kKnown),
      [&name](const KnownArchitecture& architecture) { return name == architecture.name; });
  if (known == std::end(kKnown)) return unknown_architecture(name);
  ModelGeometry geometry;
  geometry.architecture = name;
  FieldReader fields(config);
  read_common(fields, geometry);
  known->read(fields, geometry);
  HS_RETURN_IF_ERROR(fields.status());
  return geometry;
}

absl::StatusOr<ModelGeometry> geometry_of(const model::ModelSpec& spec, std::int64_t bytes) {
  if (spec.layers > kMaxLayers || spec.hidden > kMaxWidth || spec.heads > kMaxHeads ||
      spec.head_dim > kMaxHeadSize || std::int64_t{spec.heads} * spec.head_dim > kMaxAllHeads ||
      spec.intermediate > kMaxWidth) {
    return absl::InvalidArgumentError("the model is larger than anything that can be planned");
  }
  ModelGeometry geometry;
  geometry.architecture = spec.architecture;
  geometry.layers = spec.layers;
  geometry.hidden = spec.hidden;
  geometry.heads = spec.heads;
  geometry.kv_heads = spec.kv_heads;
  geometry.head_dim = spec.head_dim;
  geometry.dense_width = spec.intermediate;
  geometry.vocabulary = spec.vocabulary;
  geometry.max_position = spec.max_position;
  geometry.tied = spec.tied;
  geometry.stored = {
      .format = WeightFormat::kBf16, .name = "as in the file", .block_values = 0, .bytes = bytes};
  return geometry;
}

absl::Status check_ranks(const ModelGeometry& geometry, std::int32_t ranks) {
  const auto divides = [&geometry](std::int64_t p) {
    const bool grouped = geometry.attention == Attention::kGrouped;
    return geometry.heads % p == 0 &&
           (!grouped || geometry.kv_heads % p == 0 || p % geometry.kv_heads == 0) &&
           (geometry.dense_layers() == 0 || geometry.dense_width % p == 0) &&
           (geometry.experts.layers == 0 || geometry.experts.width % p == 0) &&
           geometry.vocabulary % p == 0;
  };
  if (ranks >= 1 && divides(ranks)) return absl::OkStatus();
  constexpr std::int64_t kMostListed = 64;
  std::string sizes;
  for (std::int64_t p = 1; p <= std::min(geometry.heads, kMostListed); ++p) {
    if (divides(p)) sizes += (sizes.empty() ? "" : ", ") + std::to_string(p);
  }
  return absl::InvalidArgumentError(
      std::to_string(ranks) + " GPUs do not divide this model's heads and widths: use " + sizes);
}

}  // namespace hisparse::plan
