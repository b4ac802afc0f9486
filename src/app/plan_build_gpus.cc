#include <algorithm>
#include <utility>

#include "app/plan_build.h"
#include "app/plan_build_common.h"
#include "base/status.h"
#include "format/untrusted_text.h"

namespace hisparse::app {
namespace {

using config::PlanDType;
using plan::RowType;
using plan::WeightFormat;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr std::int64_t kFp8Block = 128 * 128;
constexpr double kMisses[] = {0.01, 0.02, 0.05, 0.10, 0.20, 0.50, 1.00};
constexpr double kShownMisses[] = {0.01, 0.10, 1.00};

absl::StatusOr<WeightFormat> resolve_weights(PlanDType choice, plan::StoredWeights& stored) {
  if (choice == PlanDType::kAuto) {
    if (stored.format) return *stored.format;
    return absl::UnimplementedError("weights of type " + format::in_quotes(stored.name) +
                                    " are not known to the planner: say with --weight-dtype what "
                                    "they will be on the device");
  }
  // Other than what the file holds: converted when it is loaded.
  stored.bytes = 0;
  if (choice == PlanDType::kF32) return WeightFormat::kF32;
  if (choice == PlanDType::kBF16) return WeightFormat::kBf16;
  if (stored.block_values == 0) stored.block_values = kFp8Block;
  return WeightFormat::kFp8Blocks;
}

RowType resolve_rows(PlanDType choice, plan::Attention attention) {
  switch (choice) {
    case PlanDType::kF32:
      return RowType::kF32;
    case PlanDType::kBF16:
      return RowType::kBf16;
    case PlanDType::kFp8:
      return RowType::kFp8;
    case PlanDType::kAuto:
      break;
  }
  return attention == plan::Attention::kLatentSparse ? RowType::kFp8 : RowType::kBf16;
}

std::string name_of(RowType rows) {
  switch (rows) {
    case RowType::kF32:
      return "f32";
    case RowType::kBf16:
      return "bf16";
    case RowType::kFp8:
      return "fp8";
  }
  return "";
}

std::string name_of(WeightFormat format, const plan::StoredWeights& stored) {
  if (stored.bytes > 0) return stored.name;
  switch (format) {
    case WeightFormat::kF32:
      return "f32";
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kFp8Blocks:
      return "fp8";
  }
  return "";
}

plan::GpuRequest gpu_request(const config::PlanSettings& settings, plan::ModelGeometry geometry,
                             plan::Machine machine) {
  const config::EngineSettings& engine = settings.engine;
  plan::GpuRequest request;
  request.rows = resolve_rows(settings.kv_cache_dtype, geometry.attention);
  request.geometry = std::move(geometry);
  request.machine = std::move(machine);
  request.draft_tokens = settings.num_speculative_tokens;
  request.hot_rows = settings.hot_rows;
  request.page_tokens = engine.block_size;
  request.max_model_len = engine.max_model_len;
  request.max_sequences = settings.max_num_seqs;
  request.step_tokens = engine.max_num_batched_tokens;
  request.memory_share = settings.gpu_memory_utilization;
  request.kv_bytes = engine.kv_cache_memory_bytes;
  if (engine.kv_tiering == config::KvTiering::kHybrid) {
    request.host_bytes = static_cast<std::int64_t>(engine.swap_space * kGiB);
    request.disk_bytes = engine.kv_disk_space;
  }
  return request;
}

plan::StepShape step_shape(const plan::GpuRequest& request, const plan::GpuPlan& plan) {
  plan::StepShape shape;
  shape.request = plan.shape;
  shape.top_k = request.geometry.indexer.top_k;
  shape.layers = plan.cache_groups.front().group.layers;
  shape.bandwidths = request.machine.bandwidths;
  const double tokens = 1.0 + request.draft_tokens;
  shape.weight_bytes = [&request, &plan, tokens](double requests) {
    return plan::step_weight_bytes(plan.weight_groups, request.geometry, request.weights,
                                   requests * tokens);
  };
  return shape;
}

void add_gpu_speeds(const plan::GpuRequest& request, const plan::GpuPlan& plan,
                    PlanReport& report) {
  const plan::StepShape shape = step_shape(request, plan);
  const std::int64_t context = plan.max_model_len;
  const plan::ContextCapacity& longest = plan.contexts.back();
  const bool sparse = request.geometry.attention == plan::Attention::kLatentSparse;
  auto resident = static_cast<std::int64_t>(longest.resident);
  if (request.max_sequences > 0) resident = std::min(resident, request.max_sequences);
  for (const std::int64_t batch : batches_up_to(resident)) {
    report.steps.push_back(plan::resident_step(shape, context, batch));
  }
  const std::vector<std::int64_t> batches =
      batches_up_to(std::max<std::int64_t>(longest.requests, 1));
  const auto add = [&](const auto& step) {
    for (const std::int64_t batch : batches) {
      if (!sparse) report.steps.push_back(step(shape, context, batch, 1.0));
      for (const double miss : kShownMisses) {
        if (sparse) report.steps.push_back(step(shape, context, batch, miss));
      }
    }
  };
  add(plan::host_step);
  if (request.disk_bytes > 0) add(plan::disk_step);
  if (!sparse) return;
  for (const std::int64_t batch : {1, 8}) {
    for (const double miss : kMisses) report.misses.push_back(plan::miss_cost(shape, batch, miss));
  }
}

void add_gpu_flags(const config::PlanSettings& settings, const plan::GpuRequest& request,
                   PlanReport& report) {
  const config::EngineSettings& engine = settings.engine;
  const std::int64_t sequences =
      std::clamp<std::int64_t>(report.contexts.back().requests, 1, config::kMaxSequences);
  std::vector<std::string>& flags = report.flags;
  flags = {"--model " + settings.engine.model,
           "--max-model-len " + std::to_string(report.max_model_len),
           "--max-num-seqs " + std::to_string(sequences),
           "--max-num-batched-tokens " +
               std::to_string(std::max(engine.max_num_batched_tokens, sequences)),
           "--block-size " + std::to_string(engine.block_size),
           "--tensor-parallel-size " + std::to_string(report.ranks),
           "--kv-cache-memory-bytes " + std::to_string(report.budget.device * report.ranks)};
  if (request.rows != RowType::kFp8) flags.push_back("--kv-cache-dtype " + name_of(request.rows));
  add_engine_flags(engine, flags);
}

void add_gpu_texts(const plan::GpuRequest& request, const plan::ModelGeometry& geometry,
                   PlanReport& report) {
  report.missing.push_back("CUDA: it serves on CPUs, so this is a plan for a machine of that kind");
  if (geometry.stored.bytes == 0) {  // a config.json
    report.missing.push_back(geometry.architecture +
                             " from config.json: it serves Llama-family models in GGUF files");
  }
  if (request.rows == RowType::kFp8) {
    report.missing.push_back("fp8 KV rows (no flag of serve makes them)");
  }
  if (request.draft_tokens > 0) report.missing.push_back("MTP draft tokens");
  report.notes.push_back(
      "memory and bandwidths of the device, the 2 GiB of its runtime and the activations are "
      "stated or estimated: pass measured ones (--memory-gbps, --link-gbps, --gather-gbps, "
      "--disk-gbps, --gpu-memory-utilization)");
  if (report.hot_rows > 0) {
    report.notes.push_back(
        "latents and index keys are the same on every rank: more GPUs do not hold more of them; "
        "host memory and disk hold one copy");
  }
  if (request.draft_tokens > 0) {
    report.notes.push_back(
        "ceilings count one token a step: accepted draft tokens come on top, and the rows that "
        "drafts select beyond those of the token are not counted");
  }
  if (report.hot_rows > 0 && request.disk_bytes > 0) {
    report.notes.push_back(
        "from disk the least that can be read is a page in one layer (" +
        std::to_string(report.shape.disk.slice_bytes) +
        " bytes): the ceilings take the worst case, in which each missed row lies in another page");
  }
  add_fit_notes(report);
}

PlanModel model_of(const config::PlanSettings& settings, const plan::GpuRequest& request,
                   const plan::GpuPlan& plan) {
  const plan::ModelGeometry& geometry = request.geometry;
  return {.name = base_name(settings.engine.model),
          .architecture = geometry.architecture,
          .layers = geometry.layers,
          .mtp_layers = plan.mtp == plan::Mtp::kOn ? geometry.mtp_layers : 0,
          .parameters = plan.parameters,
          .active_parameters = plan.active_parameters,
          .weight_bytes = plan.weights.whole,
          .weight_dtype = name_of(request.weights, geometry.stored),
          .kv_cache_dtype = name_of(request.rows)};
}

PlanMemory memory_of(const plan::DeviceMemory& memory) {
  return {.scope = MemoryScope::kDevice,
          .limit = memory.limit,
          .owners = {{"weights", memory.weights},
                     {"activations", memory.activations},
                     {"runtime", memory.runtime},
                     {"kv_slab", memory.kv}}};
}

}  // namespace

absl::StatusOr<PlanReport> report_gpus(const config::PlanSettings& settings,
                                       const plan::ModelGeometry& geometry) {
  HS_ASSIGN_OR_RETURN(plan::Machine machine, plan::parse_machine(settings.gpus));
  override_bandwidths(settings, machine.bandwidths);
  const std::int32_t ranks = settings.engine.tensor_parallel_size;
  if (ranks != 1 && ranks != machine.count) {
    return absl::InvalidArgumentError("--tensor-parallel-size " + std::to_string(ranks) +
                                      " and --gpus " + settings.gpus +
                                      " differ: a plan shares the model over all GPUs");
  }
  plan::GpuRequest request = gpu_request(settings, geometry, std::move(machine));
  HS_ASSIGN_OR_RETURN(request.weights,
                      resolve_weights(settings.weight_dtype, request.geometry.stored));
  HS_ASSIGN_OR_RETURN(const plan::GpuPlan plan, plan::plan_gpus(request));
  PlanReport report;
  report.model = model_of(settings, request, plan);
  report.ranks = request.machine.count;
  report.machine = std::to_string(report.ranks) + "x" + request.machine.device;
  report.bandwidths = request.machine.bandwidths;
  report.max_model_len = plan.max_model_len;
  report.memory = memory_of(plan.memory);
  report.groups = plan.cache_groups;
  report.shape = plan.shape;
  report.budget = plan.budget;
  report.hot_rows = plan.hot_rows;
  report.contexts = plan.contexts;
  report.use = plan.use;
  add_gpu_speeds(request, plan, report);
  add_gpu_flags(settings, request, report);
  add_gpu_texts(request, geometry, report);
  add_disk_note(settings, report);
  return report;
}

}  // namespace hisparse::app
