// The decoder's forward pass on one rank, written once against Device and Communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ledger.h"
#include "comm/communicator.h"
#include "device/device.h"
#include "model/model_spec.h"
#include "model/weights.h"

namespace hisparse::model {

// Whether pages may have to be brought in windows (PageWindows below).
enum class PageAccess : std::uint8_t { kInPlace, kWindowed };

struct ModelOptions {
  device::Compute compute = device::Compute::kF32;
  base::DType kv_dtype = base::DType::kF32;  // KV rows: kF32 or kBF16
  std::int64_t max_rows = 0;                 // tokens in one step
  std::int64_t max_logit_rows = 0;           // rows of one step whose logits are wanted
  PageAccess pages = PageAccess::kInPlace;
};

// Where one layer's planes start within a page, in bytes.
struct LayerOffsets {
  std::int64_t k = 0;
  std::int64_t v = 0;
};

// How the pages of this rank are laid out.
struct PageGeometry {
  std::int32_t page_tokens = 0;
  std::vector<LayerOffsets> layers;  // [layers]
};

// Brings pages that the device cannot read where they lie into its reach, a window of segments at a
// time, in the order in which attention takes them. Worker thread.
class PageWindows {
 public:
  virtual ~PageWindows() = default;
  // Windows of each layer; they cover all segments.
  virtual std::int32_t count() const = 0;
  // What is enqueued from here on finds the pages of this window in the block table. Called for
  // every window of every layer, in order.
  virtual device::SegmentWindow enter(std::int32_t layer, std::int32_t window,
                                      device::Stream& stream) = 0;
  // What reads them has been enqueued.
  virtual void leave(device::Stream& stream) = 0;
};

// "Spread the attention of row `row` in layer `layer` over these pages" (device::PageMassParams).
struct PageProbe {
  std::int32_t layer = 0;
  std::int64_t row = 0;  // of the step
  std::int32_t sequence_slot = 0;
  std::int64_t position = 0;
  device::DevicePtr<const std::int32_t> pages;  // [count], read in place
  device::DevicePtr<float> masses;              // [count], written
  std::int64_t count = 0;
};

// One step's rows, in device memory that stays as it is until the step has run.
struct ForwardInputs {
  device::DevicePtr<const base::TokenId> tokens;     // [rows]
  device::RowPlacement placement;                    // rows, and where each stands
  device::DevicePtr<const std::int32_t> logit_rows;  // [logit_count] indices into the rows
  std::int64_t logit_count = 0;
  device::DevicePtr<const std::uint64_t> page_addresses;  // [sequence slots, pages_per_sequence]
  std::int64_t pages_per_sequence = 0;
  PageWindows* windows = nullptr;  // none: all pages are read in place
  std::span<const PageProbe> probes = {};
};

// Owns this rank's weights and activations. Its worker thread only. The device and the communicator
// outlive it.
class RankModel {
 public:
  struct Context {
    device::Device* device;
    comm::Communicator* communicator;
    Shard shard;
  };

  static absl::StatusOr<std::unique_ptr<RankModel>> load(const format::Checkpoint& checkpoint,
                                                         const ModelSpec& spec,
                                                         const ModelOptions& options,
                                                         const Context& context,
                                                         const LoadProgress& progress);

  // Enqueues the whole step: writes the rows' keys and values into their pages and leaves the
  // wanted logits in logits(). All ranks call it with the same rows.
  void forward(const ForwardInputs& inputs, const PageGeometry& pages, device::Stream& stream);

  // [logit_count, vocabulary] of the last forward, whole on every rank.
  device::DevicePtr<const float> logits() const;

 private:
  RankModel(const ModelSpec& spec, const ModelOptions& options, const Context& context,
            ModelWeights weights);
  absl::Status allocate();
  void attention(std::int32_t layer, const ForwardInputs& inputs, device::KvPages pages,
                 device::Stream& stream);
  void attend(std::int32_t layer, const ForwardInputs& inputs, device::PagedAttentionParams params,
              device::Stream& stream);
  void answer_probes(std::int32_t layer, const ForwardInputs& inputs, const device::KvPages& pages,
                     device::Stream& stream);
  void mlp(const LayerWeights& layer, std::int64_t rows, device::Stream& stream);
  void output(const ForwardInputs& inputs, device::Stream& stream);
  // hidden += input(in) * weight^T over all ranks: a row-parallel product onto the residual stream.
  void add_to_hidden(const device::Weight& weight, device::LinearParams params,
                     device::Stream& stream);

  ModelSpec spec_;
  ModelOptions options_;
  device::Device& device_;
  comm::Communicator& communicator_;
  Shard shard_;
  ModelWeights weights_;

  device::Buffer inverse_frequencies_;  // [head_dim / 2] f64
  device::Buffer cos_sin_;              // [max_rows, head_dim / 2, 2]
  device::Buffer hidden_;               // [max_rows, hidden]: the residual stream
  device::Buffer partial_;   // [max_rows, hidden]: this rank's share of a row-parallel product;
                             // empty with one rank
  device::Buffer q_;         // [max_rows, heads, head_dim]
  device::Buffer k_;         // [max_rows, kv_heads, head_dim]
  device::Buffer v_;         // [max_rows, kv_heads, head_dim]
  device::Buffer attended_;  // [max_rows, heads, head_dim]
  device::Buffer attention_state_;  // [max_rows, heads, 2 + head_dim]; empty without windows
  device::Buffer gate_;             // [max_rows, intermediate]
  device::Buffer up_;               // [max_rows, intermediate]
  device::Buffer gathered_;         // [max_logit_rows, hidden]
  device::Buffer rank_logits_;  // [max_logit_rows, vocabulary of this rank]; empty with one rank
  device::Buffer logits_;       // [max_logit_rows, vocabulary]
};

// Bytes of one token's keys, or values, in one layer on one rank.
std::int64_t kv_row_bytes(const ModelSpec& spec, const Shard& shard, base::DType kv_dtype);

// Bytes by owner that RankModel will allocate, before anything is loaded.
base::Ledger plan_memory(const format::Checkpoint& checkpoint, const ModelSpec& spec,
                         const ModelOptions& options, const Shard& shard,
                         const WeightBytes& weight_bytes);

}  // namespace hisparse::model
