#include "model/weights.h"

#include <cstring>
#include <unordered_set>
#include <utility>

#include "base/status.h"
#include "format/dequantize.h"

namespace hisparse::model {
namespace {

using format::CheckpointKind;
using format::TensorView;

// The checkpoint's names for what this model calls q, gate, and so on.
class TensorNames {
 public:
  explicit TensorNames(CheckpointKind kind) : gguf_(kind == CheckpointKind::kGguf) {}

  std::string embedding() const {
    return gguf_ ? "token_embd.weight" : "model.embed_tokens.weight";
  }
  std::string final_norm() const { return gguf_ ? "output_norm.weight" : "model.norm.weight"; }
  std::string head() const { return gguf_ ? "output.weight" : "lm_head.weight"; }
  std::string in_layer(std::int32_t layer, const char* gguf, const char* hugging_face) const {
    return (gguf_ ? "blk." : "model.layers.") + std::to_string(layer) + "." +
           (gguf_ ? gguf : hugging_face) + ".weight";
  }

 private:
  bool gguf_;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// Tensors that some files hold and nobody needs: tables that follow from the configuration, and an
// output matrix beside a tied embedding.
bool may_be_ignored(const std::string& name, bool tied) {
  return name == "rope_freqs.weight" || name.ends_with(".rotary_emb.inv_freq") ||
         (tied && name == "lm_head.weight");
}
// A rank's part of a stored matrix.
struct Slice {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
  // > 0: rows are heads of this size, stored with interleaved rotary pairs; they are read in
  // half-split order (GGUF row h * d + 2i + s holds row h * d + s * d / 2 + i; reference/models.md
  // section 3.2).
  std::int32_t interleaved_head_dim = 0;
};

std::int64_t stored_row(const Slice& slice, std::int64_t row) {
  const std::int64_t global = slice.first_row + row;
  const std::int64_t d = slice.interleaved_head_dim;
  if (d == 0) return global;
  const std::int64_t head = global / d;
  const std::int64_t half = global % d / (d / 2);
  const std::int64_t pair = global % (d / 2);
  return head * d + 2 * pair + half;
}

device::HostMatrix host_matrix(const TensorView& tensor, const Slice& slice) {
  device::HostMatrix matrix;
  matrix.rows = slice.rows;
  matrix.cols = slice.columns;
  const std::int64_t stored_columns = tensor.shape[1];
  const std::size_t row_bytes = tensor.bytes.size() / static_cast<std::size_t>(tensor.shape[0]);
  matrix.read_row = [tensor, slice, stored_columns, row_bytes](std::int64_t row,
                                                               std::span<float> out) {
    const auto blocks = tensor.bytes.subspan(
        static_cast<std::size_t>(stored_row(slice, row)) * row_bytes, row_bytes);
    if (slice.columns == stored_columns) {
      format::dequantize_row(tensor.dtype, blocks, out);
      return;
    }
    std::vector<float> whole(static_cast<std::size_t>(stored_columns));
    format::dequantize_row(tensor.dtype, blocks, whole);
    std::copy_n(whole.begin() + slice.first_column, slice.columns, out.begin());
  };
  return matrix;
}

// Loads tensors of one checkpoint onto one device for one shard.
class Loader {
 public:
  Loader(const format::Checkpoint& checkpoint, const ModelSpec& spec, const WeightTarget& target)
      : checkpoint_(checkpoint),
        names_(checkpoint.kind()),
        spec_(spec),
        shard_(*target.shard),
        compute_(target.compute),
        device_(*target.device) {}

  absl::StatusOr<ModelWeights> load(const LoadProgress& progress);

 private:
  absl::StatusOr<const TensorView*> find_tensor(const std::string& name,
                                                const std::vector<std::int64_t>& shape);
  absl::Status refuse_unread_tensors() const;
  absl::StatusOr<LayerWeights> load_layer(std::int32_t layer);
  absl::StatusOr<NormWeight> load_norm(const std::string& name);
  absl::StatusOr<std::vector<float>> load_rope_divisors();
  absl::StatusOr<std::unique_ptr<device::Weight>> load_matrix(const std::string& name,
                                                              std::int64_t stored_rows,
                                                              std::int64_t stored_columns,
                                                              const Slice& slice);
  // All columns of rows [first, first + count) of a matrix with `stored_rows` rows.
  absl::StatusOr<std::unique_ptr<device::Weight>> load_rows(const std::string& name,
                                                            std::int64_t stored_rows,
                                                            std::int64_t first, std::int64_t count,
                                                            std::int32_t interleaved_head_dim = 0);
  // All rows of columns [first, first + count) of a matrix with `stored_columns` columns.
  absl::StatusOr<std::unique_ptr<device::Weight>> load_columns(const std::string& name,
                                                               std::int64_t stored_columns,
                                                               std::int64_t first,
                                                               std::int64_t count);

  const format::Checkpoint& checkpoint_;
  TensorNames names_;
  const ModelSpec& spec_;
  const Shard& shard_;
  base::DType compute_;
  device::Device& device_;
  std::unordered_set<std::string> read_;  // names of the tensors that were used
};

absl::StatusOr<const TensorView*> Loader::find_tensor(const std::string& name,
                                                      const std::vector<std::int64_t>& shape) {
  const TensorView* tensor = checkpoint_.find(name);
  if (tensor == nullptr) return absl::NotFoundError("tensor " + name + " is missing");
  if (tensor->shape != shape) {
    return absl::InvalidArgumentError("tensor " + name + " has the shape " +
                                      shape_text(tensor->shape) + " where the model needs " +
                                      shape_text(shape));
  }
  read_.insert(name);
  return tensor;
}

absl::Status Loader::refuse_unread_tensors() const {
  for (const TensorView& tensor : checkpoint_.tensors()) {
    if (read_.contains(tensor.name) || may_be_ignored(tensor.name, spec_.tied)) continue;
    return absl::UnimplementedError(
        "tensor " + tensor.name +
        " is not part of the supported architecture: models with it are "
        "not supported yet");
  }
  return absl::OkStatus();
}

absl::StatusOr<NormWeight> Loader::load_norm(const std::string& name) {
  HS_ASSIGN_OR_RETURN(const TensorView* tensor, find_tensor(name, {spec_.hidden}));
  std::vector<float> values(static_cast<std::size_t>(spec_.hidden));
  format::dequantize_row(tensor->dtype, tensor->bytes, values);
  HS_ASSIGN_OR_RETURN(device::Buffer buffer,
                      device_.allocate(values.size() * sizeof(float), base::MemoryOwner::kWeights));
  const auto stream = device_.create_stream();
  device_.copy_to_device(std::as_bytes(std::span(values)), buffer.as<std::byte>(), *stream);
  HS_RETURN_IF_ERROR(device_.synchronize(device_.record(*stream)));
  return buffer;
}

absl::StatusOr<std::vector<float>> Loader::load_rope_divisors() {
  const TensorView* tensor = checkpoint_.find("rope_freqs.weight");
  if (tensor == nullptr) return std::vector<float>{};
  const std::int64_t pairs = spec_.head_dim / 2;
  HS_RETURN_IF_ERROR(find_tensor(tensor->name, {pairs}).status());
  std::vector<float> divisors(static_cast<std::size_t>(pairs));
  format::dequantize_row(tensor->dtype, tensor->bytes, divisors);
  for (float divisor : divisors) {
    if (!(divisor > 0.0f)) {
      return absl::InvalidArgumentError(
          "tensor rope_freqs.weight holds a value that is not positive");
    }
  }
  return divisors;
}

absl::StatusOr<std::unique_ptr<device::Weight>> Loader::load_matrix(const std::string& name,
                                                                    std::int64_t stored_rows,
                                                                    std::int64_t stored_columns,
                                                                    const Slice& slice) {
  HS_ASSIGN_OR_RETURN(const TensorView* tensor, find_tensor(name, {stored_rows, stored_columns}));
  return device_.prepare_weight(host_matrix(*tensor, slice), compute_);
}

absl::StatusOr<std::unique_ptr<device::Weight>> Loader::load_rows(
    const std::string& name, std::int64_t stored_rows, std::int64_t first, std::int64_t count,
    std::int32_t interleaved_head_dim) {
  return load_matrix(name, stored_rows, spec_.hidden,
                     Slice{.first_row = first,
                           .rows = count,
                           .first_column = 0,
                           .columns = spec_.hidden,
                           .interleaved_head_dim = interleaved_head_dim});
}

absl::StatusOr<std::unique_ptr<device::Weight>> Loader::load_columns(const std::string& name,
                                                                     std::int64_t stored_columns,
                                                                     std::int64_t first,
                                                                     std::int64_t count) {
  return load_matrix(name, spec_.hidden, stored_columns,
                     Slice{.first_row = 0,
                           .rows = spec_.hidden,
                           .first_column = first,
                           .columns = count,
                           .interleaved_head_dim = 0});
}

absl::StatusOr<LayerWeights> Loader::load_layer(std::int32_t layer) {
  const std::int64_t d = spec_.head_dim;
  const std::int32_t interleaved = checkpoint_.kind() == CheckpointKind::kGguf ? spec_.head_dim : 0;
  const auto name = [&](const char* gguf, const char* hugging_face) {
    return names_.in_layer(layer, gguf, hugging_face);
  };
  const std::int64_t first_column = static_cast<std::int64_t>(shard_.rank) * shard_.intermediate;
  LayerWeights weights;
  HS_ASSIGN_OR_RETURN(weights.attention_norm, load_norm(name("attn_norm", "input_layernorm")));
  HS_ASSIGN_OR_RETURN(weights.q, load_rows(name("attn_q", "self_attn.q_proj"), spec_.heads * d,
                                           shard_.first_head * d, shard_.heads * d, interleaved));
  HS_ASSIGN_OR_RETURN(weights.k,
                      load_rows(name("attn_k", "self_attn.k_proj"), spec_.kv_heads * d,
                                shard_.first_kv_head * d, shard_.kv_heads * d, interleaved));
  HS_ASSIGN_OR_RETURN(weights.v, load_rows(name("attn_v", "self_attn.v_proj"), spec_.kv_heads * d,
                                           shard_.first_kv_head * d, shard_.kv_heads * d));
  HS_ASSIGN_OR_RETURN(weights.output,
                      load_columns(name("attn_output", "self_attn.o_proj"), spec_.heads * d,
                                   shard_.first_head * d, shard_.heads * d));
  HS_ASSIGN_OR_RETURN(weights.mlp_norm, load_norm(name("ffn_norm", "post_attention_layernorm")));
  HS_ASSIGN_OR_RETURN(weights.gate, load_rows(name("ffn_gate", "mlp.gate_proj"), spec_.intermediate,
                                              first_column, shard_.intermediate));
  HS_ASSIGN_OR_RETURN(weights.up, load_rows(name("ffn_up", "mlp.up_proj"), spec_.intermediate,
                                            first_column, shard_.intermediate));
  HS_ASSIGN_OR_RETURN(weights.down,
                      load_columns(name("ffn_down", "mlp.down_proj"), spec_.intermediate,
                                   first_column, shard_.intermediate));
  return weights;
}

absl::StatusOr<ModelWeights> Loader::load(const LoadProgress& progress) {
  const std::int64_t first_token = static_cast<std::int64_t>(shard_.rank) * shard_.vocabulary;
  ModelWeights weights;
  HS_ASSIGN_OR_RETURN(weights.rope_divisors, load_rope_divisors());
  HS_ASSIGN_OR_RETURN(weights.embedding, load_rows(names_.embedding(), spec_.vocabulary,
                                                   first_token, shard_.vocabulary));
  for (std::int32_t layer = 0; layer < spec_.layers; ++layer) {
    HS_ASSIGN_OR_RETURN(LayerWeights loaded, load_layer(layer));
    weights.layers.push_back(std::move(loaded));
    if (progress && !progress(layer + 1, spec_.layers)) {
      return absl::CancelledError("loading was stopped");
    }
  }
  HS_ASSIGN_OR_RETURN(weights.final_norm, load_norm(names_.final_norm()));
  if (!spec_.tied) {
    HS_ASSIGN_OR_RETURN(weights.head,
                        load_rows(names_.head(), spec_.vocabulary, first_token, shard_.vocabulary));
  }
  HS_RETURN_IF_ERROR(refuse_unread_tensors());
  return weights;
}

}  // namespace

absl::StatusOr<ModelWeights> load_weights(const format::Checkpoint& checkpoint,
                                          const ModelSpec& spec, const WeightTarget& target,
                                          const LoadProgress& progress) {
  return Loader(checkpoint, spec, target).load(progress);
}

}  // namespace hisparse::model
