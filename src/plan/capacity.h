// How many requests fit, and which limit binds (reference/hisparse.md 5.2 and 5.4). Pure
// arithmetic.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "plan/cache.h"
#include "plan/geometry.h"
#include "plan/machine.h"
#include "plan/weights.h"

namespace hisparse::plan {

// What one request takes. A spilled request of a sparse model keeps its index keys and `hot_bytes`
// on each device; one of a dense model keeps the page that it writes.
struct RequestShape {
  Attention attention = Attention::kGrouped;
  TokenRows rows;
  DiskPage disk;
  std::int64_t hot_bytes = 0;  // on each rank
  std::int32_t page_tokens = 64;
};

struct KvBudget {
  std::int64_t device = 0;  // bytes on each rank
  std::int64_t host = 0;    // over all ranks
  std::int64_t disk = 0;    // over all ranks
};

// What keeps one more request out. kHost and kDisk: the device would take more spilled requests of
// a sparse model than the lower tiers hold; kDisk where there is a disk, kHost also where there is
// no lower tier. kTiers: pages of a dense model lie in any tier, and all are full.
enum class Limit : std::uint8_t { kDevice, kHost, kDisk, kTiers, kSequences };
std::string_view name_of(Limit limit);

// Requests of one length, prompt and output together. Fractions tell how near the next one is.
struct ContextCapacity {
  std::int64_t context = 0;
  double resident = 0.0;      // with all their pages on the device
  double device_limit = 0.0;  // spilled, if the lower tiers were endless
  double host_limit = 0.0;    // spilled, whose pages host memory holds
  double disk_limit = 0.0;    // the same for the disk
  double lower_needed = 0.0;  // sparse: bytes of lower tiers that all of `device_limit` would take
  // Whole requests at the same time, some resident and the others spilled (sparse models), or with
  // their pages anywhere (dense models).
  std::int64_t requests = 0;
  std::int64_t spilled = 0;  // of them
  Limit limit = Limit::kDevice;
};

// At most `max_sequences` at the same time; 0: no such limit.
ContextCapacity fit(const RequestShape& shape, const KvBudget& budget, std::int64_t context,
                    std::int64_t max_sequences);

// Some powers of two below `longest`, and `longest`.
std::vector<std::int64_t> contexts_up_to(std::int64_t longest);

// Who takes the KV bytes when the requests of the longest context run.
struct KvUse {
  std::int64_t resident_pages = 0;  // on each device
  std::int64_t index_keys = 0;      // of spilled requests, on each device
  std::int64_t hot_rows = 0;        // on each device
  std::int64_t host = 0;
  std::int64_t disk = 0;
};

// For the requests of `capacity`. Host memory is filled before the disk.
KvUse use_of(const RequestShape& shape, const KvBudget& budget, const ContextCapacity& capacity);

// What a plan for GPUs is made from.
struct GpuRequest {
  ModelGeometry geometry;
  Machine machine;
  WeightFormat weights = WeightFormat::kBf16;
  RowType rows = RowType::kBf16;
  std::int32_t draft_tokens = 0;  // of the MTP layers; 0: they stay unloaded
  std::int64_t hot_rows = 0;      // of a spilled request in a layer; 0: (draft_tokens + 2) * top_k
  std::int32_t page_tokens = 64;
  std::int64_t max_model_len = 0;  // 0: the model's
  std::int64_t max_sequences = 0;  // 0: as many as fit
  std::int64_t step_tokens = 512;
  double memory_share = 0.92;  // of the device
  std::int64_t kv_bytes = 0;   // over all devices; 0: what is left
  std::int64_t host_bytes = 0;
  std::int64_t disk_bytes = 0;
};

// Bytes on each device.
struct DeviceMemory {
  std::int64_t limit = 0;  // the share of the device that may be taken
  std::int64_t weights = 0;
  std::int64_t activations = 0;
  std::int64_t runtime = 0;  // CUDA context, NCCL, graphs
  std::int64_t kv = 0;
};

struct GpuPlan {
  Mtp mtp = Mtp::kOff;
  std::int64_t max_model_len = 0;
  std::int64_t hot_rows = 0;
  std::int64_t parameters = 0;
  double active_parameters = 0.0;
  WeightBytes weights;
  std::vector<WeightGroup> weight_groups;
  std::vector<PlannedGroup> cache_groups;
  RequestShape shape;
  KvBudget budget;
  DeviceMemory memory;
  std::vector<ContextCapacity> contexts;  // the last one is the longest
  KvUse use;                              // of the longest
};

// The arithmetic of one machine with GPUs. InvalidArgument for what does not fit together,
// ResourceExhausted with the numbers and the flag to change for what does not fit.
absl::StatusOr<GpuPlan> plan_gpus(const GpuRequest& request);

// An estimate of the buffers of a step on one rank, from the shapes of the layers (16-bit values,
// f32 logits and index scores).
std::int64_t activation_bytes(const ModelGeometry& geometry, std::int32_t ranks,
                              std::int64_t step_tokens, std::int64_t sequences,
                              std::int64_t max_model_len);

}  // namespace hisparse::plan
