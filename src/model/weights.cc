#include "model/weights.h"

#include <unordered_set>
#include <utility>

#include "base/status.h"
#include "format/dequantize.h"
#include "model/weight_map.h"

namespace hisparse::model {
namespace {

using format::TensorView;

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

// Loads tensors of one checkpoint onto one device for one shard.
class Loader {
 public:
  Loader(const format::Checkpoint& checkpoint, const ModelSpec& spec, const WeightTarget& target)
      : checkpoint_(checkpoint),
        map_(checkpoint.kind(), spec, *target.shard),
        spec_(spec),
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
  absl::StatusOr<std::unique_ptr<device::Weight>> load_matrix(const MatrixSource& source);

  const format::Checkpoint& checkpoint_;
  const WeightMap map_;
  const ModelSpec& spec_;
  device::Compute compute_;
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

absl::StatusOr<std::unique_ptr<device::Weight>> Loader::load_matrix(const MatrixSource& source) {
  HS_ASSIGN_OR_RETURN(const TensorView* tensor,
                      find_tensor(source.name, {source.stored_rows, source.stored_columns}));
  auto weight = device_.prepare_weight(host_matrix(*tensor, source), compute_);
  checkpoint_.release(*tensor);
  return weight;
}

absl::StatusOr<LayerWeights> Loader::load_layer(std::int32_t layer) {
  LayerWeights weights;
  HS_ASSIGN_OR_RETURN(weights.attention_norm, load_norm(map_.attention_norm(layer)));
  HS_ASSIGN_OR_RETURN(weights.q, load_matrix(map_.q(layer)));
  HS_ASSIGN_OR_RETURN(weights.k, load_matrix(map_.k(layer)));
  HS_ASSIGN_OR_RETURN(weights.v, load_matrix(map_.v(layer)));
  HS_ASSIGN_OR_RETURN(weights.output, load_matrix(map_.output(layer)));
  HS_ASSIGN_OR_RETURN(weights.mlp_norm, load_norm(map_.mlp_norm(layer)));
  HS_ASSIGN_OR_RETURN(weights.gate, load_matrix(map_.gate(layer)));
  HS_ASSIGN_OR_RETURN(weights.up, load_matrix(map_.up(layer)));
  HS_ASSIGN_OR_RETURN(weights.down, load_matrix(map_.down(layer)));
  return weights;
}

absl::StatusOr<ModelWeights> Loader::load(const LoadProgress& progress) {
  ModelWeights weights;
  HS_ASSIGN_OR_RETURN(weights.rope_divisors, load_rope_divisors());
  HS_ASSIGN_OR_RETURN(weights.embedding, load_matrix(map_.embedding()));
  for (std::int32_t layer = 0; layer < spec_.layers; ++layer) {
    HS_ASSIGN_OR_RETURN(LayerWeights loaded, load_layer(layer));
    weights.layers.push_back(std::move(loaded));
    if (progress && !progress(layer + 1, spec_.layers)) {
      return absl::CancelledError("loading was stopped");
    }
  }
  HS_ASSIGN_OR_RETURN(weights.final_norm, load_norm(map_.final_norm()));
  if (!spec_.tied) {
    HS_ASSIGN_OR_RETURN(weights.head, load_matrix(map_.head()));
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

std::int64_t plan_weight_bytes(const format::Checkpoint& checkpoint, const ModelSpec& spec,
                               const Shard& shard, device::Compute compute,
                               const WeightBytes& weight_bytes) {
  const WeightMap map(checkpoint.kind(), spec, shard);
  const auto bytes_of = [&](const MatrixSource& source) {
    const TensorView* tensor = checkpoint.find(source.name);
    return weight_bytes(matrix_shape(tensor ? tensor->dtype : base::DType::kF32, source), compute);
  };
  const std::int64_t norm = spec.hidden * static_cast<std::int64_t>(sizeof(float));
  std::int64_t bytes = bytes_of(map.embedding()) + norm;
  if (!spec.tied) bytes += bytes_of(map.head());
  for (std::int32_t i = 0; i < spec.layers; ++i) {
    bytes += bytes_of(map.q(i)) + bytes_of(map.k(i)) + bytes_of(map.v(i)) +
             bytes_of(map.output(i)) + bytes_of(map.gate(i)) + bytes_of(map.up(i)) +
             bytes_of(map.down(i)) + 2 * norm;
  }
  return bytes;
}

}  // namespace hisparse::model
