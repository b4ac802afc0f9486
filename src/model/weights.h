// From tensors in a checkpoint to weights on a rank's device: names, q/k permutation, shards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/device.h"
#include "format/checkpoint.h"
#include "model/model_spec.h"

namespace hisparse::model {

// A norm's weight in f32 on the device.
using NormWeight = device::Buffer;

struct LayerWeights {
  NormWeight attention_norm;               // [hidden]
  std::unique_ptr<device::Weight> q;       // [heads * head_dim, hidden], heads of this rank
  std::unique_ptr<device::Weight> k;       // [kv_heads * head_dim, hidden]
  std::unique_ptr<device::Weight> v;       // [kv_heads * head_dim, hidden]
  std::unique_ptr<device::Weight> output;  // [hidden, heads * head_dim]: this rank's columns
  NormWeight mlp_norm;                     // [hidden]
  std::unique_ptr<device::Weight> gate;    // [intermediate, hidden]
  std::unique_ptr<device::Weight> up;      // [intermediate, hidden]
  std::unique_ptr<device::Weight> down;    // [hidden, intermediate]: this rank's columns
};

struct ModelWeights {
  std::unique_ptr<device::Weight> embedding;  // [vocabulary of this rank, hidden]
  std::vector<LayerWeights> layers;
  NormWeight final_norm;                 // [hidden]
  std::unique_ptr<device::Weight> head;  // [vocabulary of this rank, hidden]; null when tied
  std::vector<float> rope_divisors;      // GGUF rope_freqs; empty when there is none
};

// Called after each loaded layer with (layers done, layers); false stops the loading (Cancelled).
using LoadProgress = std::function<bool(std::int32_t, std::int32_t)>;

// Which part of a model goes where.
struct WeightTarget {
  const Shard* shard;
  device::Compute compute;
  device::Device* device;
};

// Loads this rank's part. Refuses a checkpoint that holds a tensor which this model does not read
// (a bias, say): ignoring it would change answers. Errors name the tensor, what was expected and
// what was found. The checkpoint is not needed afterwards.
absl::StatusOr<ModelWeights> load_weights(const format::Checkpoint& checkpoint,
                                          const ModelSpec& spec, const WeightTarget& target,
                                          const LoadProgress& progress);

// The device's answer to how many bytes a prepared matrix takes.
using WeightBytes = std::function<std::int64_t(const device::MatrixShape&, device::Compute)>;

// Bytes that load_weights will take for this shard. Tensors that are missing count as f32: loading
// reports them.
std::int64_t plan_weight_bytes(const format::Checkpoint& checkpoint, const ModelSpec& spec,
                               const Shard& shard, device::Compute compute,
                               const WeightBytes& weight_bytes);

}  // namespace hisparse::model
