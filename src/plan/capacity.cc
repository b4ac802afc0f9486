#include "plan/capacity.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "base/status.h"

namespace hisparse::plan {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
// CUDA context, NCCL buffers, captured graphs: stated, not measured.
constexpr std::int64_t kRuntimeBytes = std::int64_t{2} << 30;
// Index scores are computed in chunks of keys that stay within this.
constexpr std::int64_t kMaxScoreBytes = std::int64_t{1} << 29;
constexpr std::int64_t kAssumedSequences = 256;  // for activations, where --max-num-seqs is open

double ratio(std::int64_t bytes, double each) {
  return each > 0.0 ? static_cast<double>(bytes) / each : 0.0;
}

std::int64_t whole(double count) { return static_cast<std::int64_t>(std::floor(count)); }

std::string gib(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f GiB", static_cast<double>(bytes) / kGiB);
  return text;
}

std::int64_t pages_of(std::int64_t context, std::int32_t page_tokens) {
  return (context + page_tokens - 1) / page_tokens;
}

// A sparse request is resident or spilled as a whole: the more are spilled, the less device memory
// each takes. No more are spilled than must be.
void fit_sparse(const KvBudget& budget, double resident_bytes, double spilled_bytes,
                std::int64_t most, ContextCapacity& result) {
  const double lower = result.host_limit + result.disk_limit;
  const auto device = static_cast<double>(budget.device);
  result.requests = std::min(most, whole(result.resident));
  if (spilled_bytes >= resident_bytes) return;
  const std::int64_t spilled = whole(std::min(result.device_limit, lower));
  const double left = device - static_cast<double>(spilled) * spilled_bytes;
  const std::int64_t total = std::min(most, spilled + whole(left / resident_bytes));
  // With endless lower tiers all would be spilled.
  if (total < whole(result.device_limit)) {
    result.limit = budget.disk > 0 ? Limit::kDisk : Limit::kHost;
  }
  if (total <= result.requests) return;
  result.requests = total;
  result.spilled = std::min(
      spilled,
      static_cast<std::int64_t>(std::ceil((static_cast<double>(total) * resident_bytes - device) /
                                          (resident_bytes - spilled_bytes))));
}

// A page of a dense request lies in any tier; only the one that is written must be resident.
void fit_dense(const RequestShape& shape, const KvBudget& budget, std::int64_t pages,
               std::int64_t most, ContextCapacity& result) {
  const std::int64_t page_tokens = shape.page_tokens;
  const std::int64_t device = budget.device / (shape.rows.rank() * page_tokens);
  const std::int64_t host = budget.host / (shape.rows.host * page_tokens);
  const std::int64_t disk = shape.disk.bytes > 0 ? budget.disk / shape.disk.bytes : 0;
  const std::int64_t fitting = (device + host + disk) / pages;
  result.requests = std::min({most, fitting, device});
  result.spilled = result.requests - std::min(result.requests, device / pages);
  if (host + disk > 0 && fitting <= device) result.limit = Limit::kTiers;
}

std::int64_t attention_values(const ModelGeometry& geometry, std::int64_t ranks) {
  const std::int64_t heads = std::max<std::int64_t>(geometry.heads / ranks, 1);
  if (geometry.attention == Attention::kGrouped) {
    const std::int64_t kv_heads = std::max<std::int64_t>(geometry.kv_heads / ranks, 1);
    return (2 * heads + 2 * kv_heads) * geometry.head_dim;
  }
  const LatentShape& latent = geometry.latent;
  // The latents, the queries plain and absorbed, what attention gives in latents and in values, and
  // the indexer's queries.
  return latent.query_rank + latent.latent + latent.rope +
         heads * (latent.nope + latent.rope + 2 * latent.latent + latent.rope + latent.value) +
         geometry.indexer.heads * geometry.indexer.dim;
}

std::int64_t mlp_values(const ModelGeometry& geometry, std::int64_t ranks) {
  const ExpertShape& experts = geometry.experts;
  const std::int64_t dense = 2 * geometry.dense_width / ranks;
  const std::int64_t routed = experts.per_token * (geometry.hidden + 2 * experts.width / ranks);
  return std::max(dense, experts.layers > 0 ? routed : 0);
}

absl::StatusOr<std::int64_t> resolve_length(const GpuRequest& request) {
  const std::int64_t longest = request.geometry.max_position;
  if (request.max_model_len == 0) return longest;
  if (request.max_model_len > longest) {
    return absl::InvalidArgumentError("--max-model-len " + std::to_string(request.max_model_len) +
                                      " is more than the " + std::to_string(longest) +
                                      " tokens that the model was made for");
  }
  return request.max_model_len;
}

absl::Status plan_device(const GpuRequest& request, GpuPlan& plan) {
  DeviceMemory& memory = plan.memory;
  const std::int64_t sequences =
      request.max_sequences > 0 ? request.max_sequences : kAssumedSequences;
  memory.limit =
      static_cast<std::int64_t>(request.memory_share * static_cast<double>(request.machine.memory));
  memory.weights = plan.weights.rank;
  memory.activations = activation_bytes(request.geometry, request.machine.count,
                                        request.step_tokens, sequences, plan.max_model_len);
  memory.runtime = kRuntimeBytes;
  const std::int64_t left = memory.limit - memory.weights - memory.activations - memory.runtime;
  const std::int64_t wanted = request.kv_bytes / request.machine.count;
  memory.kv = request.kv_bytes > 0 ? wanted : left;
  if (left > 0 && memory.kv <= left) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      "each " + request.machine.device + " may take " + gib(memory.limit) + " and needs " +
      gib(memory.weights) + " for weights, " + gib(memory.activations) + " for activations, " +
      gib(memory.runtime) + " for the runtime" +
      (request.kv_bytes > 0 ? " and " + gib(wanted) + " for KV pages: lower --kv-cache-memory-bytes"
                            : std::string(" and has nothing left for KV pages: ") +
                                  "use more GPUs, --weight-dtype fp8 or fewer "
                                  "--max-num-batched-tokens"));
}

}  // namespace

std::string_view name_of(Limit limit) {
  switch (limit) {
    case Limit::kDevice:
      return "device memory";
    case Limit::kHost:
      return "host memory";
    case Limit::kDisk:
      return "disk";
    case Limit::kTiers:
      return "all tiers";
    case Limit::kSequences:
      return "--max-num-seqs";
  }
  return "unknown";
}

ContextCapacity fit(const RequestShape& shape, const KvBudget& budget, std::int64_t context,
                    std::int64_t max_sequences) {
  const std::int64_t most =
      max_sequences > 0 ? max_sequences : std::numeric_limits<std::int64_t>::max();
  const std::int64_t pages = pages_of(context, shape.page_tokens);
  const auto tokens = static_cast<double>(pages * shape.page_tokens);
  const bool sparse = shape.attention == Attention::kLatentSparse;
  const double resident_bytes = tokens * static_cast<double>(shape.rows.rank());
  const double spilled_bytes =
      sparse ? tokens * static_cast<double>(shape.rows.stays) + static_cast<double>(shape.hot_bytes)
             : static_cast<double>(shape.rows.rank() * shape.page_tokens);
  const double host_bytes = tokens * static_cast<double>(shape.rows.host);
  ContextCapacity result;
  result.context = context;
  result.resident = ratio(budget.device, resident_bytes);
  result.device_limit = ratio(budget.device, spilled_bytes);
  result.host_limit = ratio(budget.host, host_bytes);
  result.disk_limit =
      ratio(budget.disk, static_cast<double>(pages) * static_cast<double>(shape.disk.bytes));
  if (sparse) {
    result.lower_needed = std::floor(result.device_limit) * host_bytes;
    fit_sparse(budget, resident_bytes, spilled_bytes, most, result);
  } else {
    fit_dense(shape, budget, pages, most, result);
  }
  if (result.requests == most) result.limit = Limit::kSequences;
  return result;
}

KvUse use_of(const RequestShape& shape, const KvBudget& budget, const ContextCapacity& capacity) {
  KvUse use;
  const std::int64_t pages = pages_of(capacity.context, shape.page_tokens);
  const std::int64_t tokens = pages * shape.page_tokens;
  const bool sparse = shape.attention == Attention::kLatentSparse;
  if (sparse) {
    use.index_keys = capacity.spilled * tokens * shape.rows.stays;
    use.hot_rows = capacity.spilled * shape.hot_bytes;
    use.resident_pages = (capacity.requests - capacity.spilled) * tokens * shape.rows.rank();
  } else {
    use.resident_pages = std::min(capacity.requests * tokens * shape.rows.rank(), budget.device);
  }
  const std::int64_t page_tokens = shape.page_tokens;
  const std::int64_t on_device = sparse ? (capacity.requests - capacity.spilled) * pages
                                        : use.resident_pages / (shape.rows.rank() * page_tokens);
  const std::int64_t lower = capacity.requests * pages - on_device;
  const std::int64_t host_pages = std::min(lower, budget.host / (shape.rows.host * page_tokens));
  use.host = host_pages * shape.rows.host * page_tokens;
  use.disk = (lower - host_pages) * shape.disk.bytes;
  return use;
}

std::vector<std::int64_t> contexts_up_to(std::int64_t longest) {
  constexpr std::size_t kShown = 5;
  std::vector<std::int64_t> contexts;
  for (std::int64_t context = 1024; context < longest; context *= 2) contexts.push_back(context);
  if (contexts.size() > kShown) {
    contexts.erase(contexts.begin(), contexts.end() - static_cast<std::ptrdiff_t>(kShown));
  }
  contexts.push_back(longest);
  return contexts;
}

std::int64_t activation_bytes(const ModelGeometry& geometry, std::int32_t ranks,
                              std::int64_t step_tokens, std::int64_t sequences,
                              std::int64_t max_model_len) {
  constexpr std::int64_t kValueBytes = 2;
  constexpr std::int64_t kScoreBytes = 4;
  constexpr std::int64_t kHiddenBuffers = 4;  // residual, normalised, attention's and MLP's output
  const std::int64_t row = kHiddenBuffers * geometry.hidden + attention_values(geometry, ranks) +
                           mlp_values(geometry, ranks);
  const std::int64_t logits =
      sequences * (geometry.vocabulary + geometry.vocabulary / ranks) * kScoreBytes;
  const std::int64_t scores =
      geometry.attention == Attention::kLatentSparse
          ? std::min(step_tokens * max_model_len * kScoreBytes, kMaxScoreBytes)
          : 0;
  return step_tokens * row * kValueBytes + logits + scores;
}

absl::StatusOr<GpuPlan> plan_gpus(const GpuRequest& request) {
  const ModelGeometry& geometry = request.geometry;
  const std::int32_t ranks = request.machine.count;
  HS_RETURN_IF_ERROR(check_ranks(geometry, ranks));
  if (request.draft_tokens > 0 && geometry.mtp_layers == 0) {
    return absl::InvalidArgumentError(
        "--num-speculative-tokens needs a model with MTP layers (num_nextn_predict_layers)");
  }
  GpuPlan plan;
  plan.mtp = request.draft_tokens > 0 ? Mtp::kOn : Mtp::kOff;
  HS_ASSIGN_OR_RETURN(plan.max_model_len, resolve_length(request));
  plan.weight_groups = weight_groups(geometry, ranks, plan.mtp);
  plan.parameters = parameters(plan.weight_groups);
  plan.active_parameters = active_parameters(plan.weight_groups, geometry.experts);
  plan.weights = weight_bytes(plan.weight_groups, geometry.stored, request.weights);
  plan.cache_groups = cache_groups(geometry, ranks, request.rows, plan.mtp);
  plan.shape = {.attention = geometry.attention,
                .rows = token_rows(plan.cache_groups, ranks),
                .disk = disk_page(plan.cache_groups, ranks, request.page_tokens),
                .hot_bytes = 0,
                .page_tokens = request.page_tokens};
  if (geometry.attention == Attention::kLatentSparse) {
    plan.hot_rows = request.hot_rows > 0
                        ? request.hot_rows
                        : (request.draft_tokens + std::int64_t{2}) * geometry.indexer.top_k;
    // Hot rows are slots of the slab: whole pages.
    plan.shape.hot_bytes =
        pages_of(plan.hot_rows, request.page_tokens) * request.page_tokens * plan.shape.rows.spills;
  }
  HS_RETURN_IF_ERROR(plan_device(request, plan));
  plan.budget = {.device = plan.memory.kv, .host = request.host_bytes, .disk = request.disk_bytes};
  for (const std::int64_t context : contexts_up_to(plan.max_model_len)) {
    plan.contexts.push_back(fit(plan.shape, plan.budget, context, request.max_sequences));
  }
  plan.use = use_of(plan.shape, plan.budget, plan.contexts.back());
  return plan;
}

}  // namespace hisparse::plan
