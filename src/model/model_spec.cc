#include "model/model_spec.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "base/status.h"

namespace hisparse::model {
namespace {

using format::Metadata;

// Far beyond any model, and small enough that every product of sizes in a memory plan fits 64 bits.
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxVocabulary = 1 << 24;
constexpr std::int64_t kMaxPosition = 1 << 24;
constexpr std::int64_t kMaxLayers = 1 << 12;

absl::StatusOr<std::int32_t> positive(const Metadata& metadata, std::string_view key,
                                      std::int64_t limit = kMaxWidth) {
  HS_ASSIGN_OR_RETURN(const std::int64_t value, metadata.get_int(key));
  if (value < 1 || value > limit) {
    return absl::InvalidArgumentError(std::string(key) + " is " + std::to_string(value) +
                                      ", outside 1 to " + std::to_string(limit));
  }
  return static_cast<std::int32_t>(value);
}

absl::StatusOr<std::int32_t> positive_or(const Metadata& metadata, std::string_view key,
                                         std::int32_t fallback) {
  if (!metadata.has(key)) return fallback;
  return positive(metadata, key);
}

absl::Status refuse_unless_false(const Metadata& metadata, std::string_view key) {
  HS_ASSIGN_OR_RETURN(const bool value, metadata.bool_or(key, false));
  if (!value) return absl::OkStatus();
  return absl::UnimplementedError(std::string(key) +
                                  " is true: models with it are not supported yet");
}

absl::Status add_end_tokens(const Metadata& metadata, std::string_view key, ModelSpec& spec) {
  if (!metadata.has(key)) return absl::OkStatus();
  std::vector<std::int64_t> ids;
  if (auto list = metadata.get_ints(key); list.ok()) {
    ids = **list;
  } else {
    HS_ASSIGN_OR_RETURN(const std::int64_t id, metadata.get_int(key));
    ids.push_back(id);
  }
  for (std::int64_t id : ids) {
    if (id < 0 || id >= spec.vocabulary) {
      return absl::InvalidArgumentError(std::string(key) + " names token " + std::to_string(id) +
                                        ", outside the vocabulary");
    }
    spec.end_tokens.push_back(static_cast<base::TokenId>(id));
  }
  return absl::OkStatus();
}

absl::StatusOr<Llama3Scaling> read_llama3(const Metadata& metadata, const std::string& prefix) {
  Llama3Scaling scaling;
  HS_ASSIGN_OR_RETURN(scaling.factor, metadata.get_double(prefix + "factor"));
  HS_ASSIGN_OR_RETURN(scaling.low_freq_factor, metadata.get_double(prefix + "low_freq_factor"));
  HS_ASSIGN_OR_RETURN(scaling.high_freq_factor, metadata.get_double(prefix + "high_freq_factor"));
  HS_ASSIGN_OR_RETURN(scaling.original_max_position,
                      metadata.get_double(prefix + "original_max_position_embeddings"));
  if (!(scaling.factor > 0 && scaling.low_freq_factor > 0 &&
        scaling.high_freq_factor > scaling.low_freq_factor && scaling.original_max_position > 0)) {
    return absl::InvalidArgumentError(prefix + "* are not a valid llama3 rope scaling");
  }
  return scaling;
}

absl::Status refuse_partial_rotation(const Metadata& metadata, const std::string& prefix) {
  HS_ASSIGN_OR_RETURN(const double partial,
                      metadata.double_or(prefix + "partial_rotary_factor", 1.0));
  if (partial == 1.0) return absl::OkStatus();
  return absl::UnimplementedError(prefix + "partial_rotary_factor is not supported yet");
}

// Old files have rope_theta beside rope_scaling; new ones keep both in rope_parameters.
absl::StatusOr<RopeSpec> read_hf_rope(const Metadata& metadata) {
  RopeSpec rope;
  HS_RETURN_IF_ERROR(refuse_partial_rotation(metadata, ""));
  HS_ASSIGN_OR_RETURN(rope.theta, metadata.double_or("rope_theta", 10000.0));
  HS_ASSIGN_OR_RETURN(rope.theta, metadata.double_or("rope_parameters.rope_theta", rope.theta));
  for (const std::string prefix : {"rope_parameters.", "rope_scaling."}) {
    HS_ASSIGN_OR_RETURN(std::string type, metadata.string_or(prefix + "type", "default"));
    HS_ASSIGN_OR_RETURN(type, metadata.string_or(prefix + "rope_type", type));
    if (type == "llama3") {
      HS_ASSIGN_OR_RETURN(rope.llama3, read_llama3(metadata, prefix));
    } else if (type != "default") {
      return absl::UnimplementedError("rope type '" + type +
                                      "' is not supported: only default and llama3 are");
    }
    HS_RETURN_IF_ERROR(refuse_partial_rotation(metadata, prefix));
  }
  return rope;
}

absl::StatusOr<ModelSpec> read_hf(const Metadata& metadata) {
  ModelSpec spec;
  HS_ASSIGN_OR_RETURN(const auto* architectures, metadata.get_strings("architectures"));
  spec.architecture = architectures->empty() ? "(none)" : architectures->front();
  if (spec.architecture != "LlamaForCausalLM") {
    return absl::UnimplementedError("architecture '" + spec.architecture +
                                    "' is not supported: only LlamaForCausalLM is");
  }
  HS_ASSIGN_OR_RETURN(spec.layers, positive(metadata, "num_hidden_layers", kMaxLayers));
  HS_ASSIGN_OR_RETURN(spec.hidden, positive(metadata, "hidden_size"));
  HS_ASSIGN_OR_RETURN(spec.heads, positive(metadata, "num_attention_heads"));
  HS_ASSIGN_OR_RETURN(spec.kv_heads, positive_or(metadata, "num_key_value_heads", spec.heads));
  HS_ASSIGN_OR_RETURN(spec.head_dim, positive_or(metadata, "head_dim", spec.hidden / spec.heads));
  HS_ASSIGN_OR_RETURN(spec.intermediate, positive(metadata, "intermediate_size"));
  HS_ASSIGN_OR_RETURN(spec.vocabulary, positive(metadata, "vocab_size", kMaxVocabulary));
  HS_ASSIGN_OR_RETURN(spec.max_position,
                      positive(metadata, "max_position_embeddings", kMaxPosition));
  HS_ASSIGN_OR_RETURN(const double epsilon, metadata.get_double("rms_norm_eps"));
  spec.rms_epsilon = static_cast<float>(epsilon);
  HS_ASSIGN_OR_RETURN(spec.tied, metadata.bool_or("tie_word_embeddings", false));
  HS_RETURN_IF_ERROR(refuse_unless_false(metadata, "attention_bias"));
  HS_RETURN_IF_ERROR(refuse_unless_false(metadata, "mlp_bias"));
  HS_ASSIGN_OR_RETURN(const std::string activation, metadata.string_or("hidden_act", "silu"));
  if (activation != "silu") {
    return absl::UnimplementedError("hidden_act '" + activation +
                                    "' is not supported: only silu is");
  }
  HS_ASSIGN_OR_RETURN(spec.rope, read_hf_rope(metadata));
  const bool generation = metadata.has("generation_config.eos_token_id");
  HS_RETURN_IF_ERROR(add_end_tokens(
      metadata, generation ? "generation_config.eos_token_id" : "eos_token_id", spec));
  return spec;
}

absl::Status refuse_unsupported_gguf(const Metadata& metadata, const std::string& prefix) {
  HS_ASSIGN_OR_RETURN(const std::int64_t experts, metadata.int_or(prefix + "expert_count", 0));
  if (experts != 0) {
    return absl::UnimplementedError("mixture-of-experts models are not supported yet");
  }
  HS_ASSIGN_OR_RETURN(const std::string scaling,
                      metadata.string_or(prefix + "rope.scaling.type", "none"));
  if (scaling != "none") {
    return absl::UnimplementedError(prefix + "rope.scaling.type '" + scaling +
                                    "' is not supported yet");
  }
  // A factor without a type means linear scaling in older files.
  for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
    HS_ASSIGN_OR_RETURN(const double factor, metadata.double_or(prefix + key, 1.0));
    if (factor != 1.0 && factor != 0.0) {
      return absl::UnimplementedError(prefix + key + " is not supported yet");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelSpec> read_gguf(const format::Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata();
  ModelSpec spec;
  HS_ASSIGN_OR_RETURN(spec.architecture, metadata.get_string("general.architecture"));
  if (spec.architecture != "llama") {
    return absl::UnimplementedError("architecture '" + spec.architecture +
                                    "' is not supported in GGUF files: only llama is");
  }
  const std::string prefix = spec.architecture + ".";
  HS_RETURN_IF_ERROR(refuse_unsupported_gguf(metadata, prefix));
  HS_ASSIGN_OR_RETURN(spec.layers, positive(metadata, prefix + "block_count", kMaxLayers));
  HS_ASSIGN_OR_RETURN(spec.hidden, positive(metadata, prefix + "embedding_length"));
  HS_ASSIGN_OR_RETURN(spec.heads, positive(metadata, prefix + "attention.head_count"));
  HS_ASSIGN_OR_RETURN(spec.kv_heads,
                      positive_or(metadata, prefix + "attention.head_count_kv", spec.heads));
  HS_ASSIGN_OR_RETURN(spec.head_dim, positive_or(metadata, prefix + "attention.key_length",
                                                 spec.hidden / spec.heads));
  HS_ASSIGN_OR_RETURN(const std::int32_t rotary,
                      positive_or(metadata, prefix + "rope.dimension_count", spec.head_dim));
  if (rotary != spec.head_dim) {
    return absl::UnimplementedError(prefix +
                                    "rope.dimension_count differs from the head size: partial "
                                    "rotation is not supported yet");
  }
  HS_ASSIGN_OR_RETURN(spec.intermediate, positive(metadata, prefix + "feed_forward_length"));
  HS_ASSIGN_OR_RETURN(spec.max_position,
                      positive(metadata, prefix + "context_length", kMaxPosition));
  HS_ASSIGN_OR_RETURN(const double epsilon,
                      metadata.get_double(prefix + "attention.layer_norm_rms_epsilon"));
  spec.rms_epsilon = static_cast<float>(epsilon);
  HS_ASSIGN_OR_RETURN(spec.rope.theta, metadata.double_or(prefix + "rope.freq_base", 10000.0));
  const format::TensorView* embedding = checkpoint.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2 || embedding->shape[0] < 1 ||
      embedding->shape[0] > kMaxVocabulary) {
    return absl::InvalidArgumentError("tensor token_embd.weight is missing or is not a matrix");
  }
  spec.vocabulary = static_cast<std::int32_t>(embedding->shape[0]);
  spec.tied = checkpoint.find("output.weight") == nullptr;
  HS_RETURN_IF_ERROR(add_end_tokens(metadata, "tokenizer.ggml.eos_token_id", spec));
  return spec;
}

absl::Status check_sizes(const ModelSpec& spec) {
  if (spec.heads % spec.kv_heads != 0) {
    return absl::InvalidArgumentError("the number of KV heads (" + std::to_string(spec.kv_heads) +
                                      ") does not divide the number of heads (" +
                                      std::to_string(spec.heads) + ")");
  }
  if (spec.head_dim < 2 || spec.head_dim % 2 != 0) {
    return absl::InvalidArgumentError("the head size " + std::to_string(spec.head_dim) +
                                      " is not a positive even number");
  }
  if (static_cast<std::int64_t>(spec.heads) * spec.head_dim > kMaxWidth) {
    return absl::InvalidArgumentError("the heads together are wider than " +
                                      std::to_string(kMaxWidth));
  }
  if (!(spec.rms_epsilon > 0.0f && spec.rms_epsilon < 1.0f) || !(spec.rope.theta > 0.0)) {
    return absl::InvalidArgumentError(
        "the norm epsilon or the rope theta is not a positive number");
  }
  return absl::OkStatus();
}

}  // namespace

std::int64_t ModelSpec::parameters() const {
  const std::int64_t width = hidden;
  const std::int64_t attention = width * head_dim * (2 * heads + 2 * kv_heads);
  const std::int64_t mlp = 3 * width * intermediate;
  const std::int64_t embeddings = static_cast<std::int64_t>(vocabulary) * width * (tied ? 1 : 2);
  return layers * (attention + mlp + 2 * width) + embeddings + width;
}

absl::StatusOr<ModelSpec> read_model_spec(const format::Checkpoint& checkpoint) {
  absl::StatusOr<ModelSpec> spec = checkpoint.kind() == format::CheckpointKind::kGguf
                                       ? read_gguf(checkpoint)
                                       : read_hf(checkpoint.metadata());
  HS_RETURN_IF_ERROR(spec.status());
  HS_RETURN_IF_ERROR(check_sizes(*spec));
  return spec;
}

std::vector<double> inverse_frequencies(const ModelSpec& spec, const std::vector<float>& divisors) {
  const std::int32_t pairs = spec.head_dim / 2;
  std::vector<double> result(static_cast<std::size_t>(pairs));
  for (std::int32_t i = 0; i < pairs; ++i) {
    double frequency = std::pow(spec.rope.theta, -2.0 * i / spec.head_dim);
    if (!divisors.empty()) {
      frequency /= divisors[static_cast<std::size_t>(i)];
    } else if (spec.rope.llama3) {
      const Llama3Scaling& scaling = *spec.rope.llama3;
      const double wavelength = 2.0 * std::numbers::pi / frequency;
      const double turns = scaling.original_max_position / wavelength;
      if (turns < scaling.low_freq_factor) {
        frequency /= scaling.factor;
      } else if (turns <= scaling.high_freq_factor) {
        const double smooth = (turns - scaling.low_freq_factor) /
                              (scaling.high_freq_factor - scaling.low_freq_factor);
        frequency = (1.0 - smooth) * frequency / scaling.factor + smooth * frequency;
      }
    }
    result[static_cast<std::size_t>(i)] = frequency;
  }
  return result;
}

absl::StatusOr<Shard> make_shard(const ModelSpec& spec, std::int32_t rank, std::int32_t ranks) {
  const auto divides = [&spec](std::int32_t p) {
    return spec.heads % p == 0 && (spec.kv_heads % p == 0 || p % spec.kv_heads == 0) &&
           spec.intermediate % p == 0 && spec.vocabulary % p == 0;
  };
  if (ranks < 1 || !divides(ranks)) {
    std::string sizes;
    for (std::int32_t p = 1; p <= spec.heads; ++p) {
      if (divides(p)) sizes += (sizes.empty() ? "" : ", ") + std::to_string(p);
    }
    return absl::InvalidArgumentError(
        "a tensor-parallel size of " + std::to_string(ranks) + " does not divide this model (" +
        std::to_string(spec.heads) + " heads, " + std::to_string(spec.kv_heads) +
        " KV heads, width " + std::to_string(spec.intermediate) + ", vocabulary " +
        std::to_string(spec.vocabulary) + "): use --tensor-parallel-size " + sizes);
  }
  Shard shard;
  shard.rank = rank;
  shard.ranks = ranks;
  shard.heads = spec.heads / ranks;
  shard.first_head = rank * shard.heads;
  shard.kv_heads = std::max(spec.kv_heads / ranks, 1);
  shard.first_kv_head =
      static_cast<std::int32_t>(static_cast<std::int64_t>(rank) * spec.kv_heads / ranks);
  shard.intermediate = spec.intermediate / ranks;
  shard.vocabulary = spec.vocabulary / ranks;
  return shard;
}

}  // namespace hisparse::model
