#include "app/plan_build.h"
#include "app/plan_build_common.h"

namespace hisparse::app {
namespace {

std::string dtype_flag(config::DTypeChoice choice) {
  switch (choice) {
    case config::DTypeChoice::kF32:
      return "--dtype f32";
    case config::DTypeChoice::kBF16:
      return "--dtype bf16";
    case config::DTypeChoice::kInt8:
      return "--dtype int8";
    case config::DTypeChoice::kAuto:
      break;
  }
  return "--dtype auto";
}

void add_launch_memory(const engine::LaunchPlan& launch, PlanReport& report) {
  const engine::WorkerOptions& worker = launch.worker;
  for (std::size_t i = 0; i < base::kMemoryOwners; ++i) {
    const auto owner = static_cast<base::MemoryOwner>(i);
    report.memory.owners.emplace_back(std::string(base::name_of(owner)), launch.ledger[owner]);
  }
  const std::int64_t token_bytes = launch.page_bytes / worker.page_tokens;
  report.shape.rows = {.spills = token_bytes / launch.ranks, .stays = 0, .host = token_bytes};
  report.shape.disk.bytes = launch.disk_page_bytes;
  report.shape.page_tokens = worker.page_tokens;
  report.budget = {.device = worker.resident_slots * launch.page_bytes / launch.ranks,
                   .host = worker.host_slots * launch.page_bytes,
                   .disk = worker.disk_slots * launch.disk_page_bytes};
}

void add_launch_speeds(const plan::ModelGeometry& geometry, const engine::LaunchPlan& launch,
                       PlanReport& report) {
  // All ranks share the memory of the machine.
  const auto groups = plan::weight_groups(geometry, 1, plan::Mtp::kOff);
  const double read = plan::active_parameters(groups, geometry.experts) /
                      static_cast<double>(plan::parameters(groups)) *
                      static_cast<double>(launch.ledger[base::MemoryOwner::kWeights]);
  plan::StepShape shape;
  shape.request = report.shape;
  shape.request.rows.spills = report.shape.rows.host;
  shape.layers = geometry.layers;
  shape.bandwidths = report.bandwidths;
  shape.weight_bytes = [read](double) { return read; };
  const std::int64_t context = report.max_model_len;
  for (const std::int64_t batch : batches_up_to(report.contexts.back().requests)) {
    report.steps.push_back(plan::resident_step(shape, context, batch));
  }
  if (report.budget.disk == 0) return;
  for (const std::int64_t batch : batches_up_to(report.contexts.back().requests)) {
    report.steps.push_back(plan::disk_step(shape, context, batch, 1.0));
  }
}

void add_launch_flags(const config::PlanSettings& settings, const engine::LaunchPlan& launch,
                      PlanReport& report) {
  const config::EngineSettings& engine = settings.engine;
  const engine::WorkerOptions& worker = launch.worker;
  report.flags = {
      "--model " + settings.engine.model,
      "--max-model-len " + std::to_string(launch.max_model_len),
      "--max-num-seqs " + std::to_string(worker.max_sequences),
      "--max-num-batched-tokens " + std::to_string(worker.model.max_rows),
      "--block-size " + std::to_string(worker.page_tokens),
      "--tensor-parallel-size " + std::to_string(launch.ranks),
      "--kv-cache-memory-bytes " + std::to_string(worker.resident_slots * launch.page_bytes),
      dtype_flag(engine.dtype),
      "--kv-cache-dtype " + std::string(base::name_of(worker.model.kv_dtype))};
  add_engine_flags(engine, report.flags);
}

}  // namespace

PlanReport report_launch(const config::PlanSettings& settings, const plan::ModelGeometry& geometry,
                         const engine::LaunchPlan& launch, std::int64_t memory_limit) {
  const auto weights = plan::weight_groups(geometry, 1, plan::Mtp::kOff);
  PlanReport report;
  report.model = {.name = base_name(settings.engine.model),
                  .architecture = geometry.architecture,
                  .layers = geometry.layers,
                  .mtp_layers = 0,
                  .parameters = plan::parameters(weights),
                  .active_parameters = plan::active_parameters(weights, geometry.experts),
                  .weight_bytes = geometry.stored.bytes,
                  .weight_dtype = geometry.stored.name,
                  .kv_cache_dtype = std::string(base::name_of(launch.worker.model.kv_dtype))};
  report.machine = "cpu";
  report.ranks = launch.ranks;
  override_bandwidths(settings, report.bandwidths);
  report.max_model_len = launch.max_model_len;
  report.memory.scope = MemoryScope::kAllRanks;
  report.memory.limit = memory_limit;
  add_launch_memory(launch, report);
  report.groups =
      plan::cache_groups(geometry, launch.ranks,
                         launch.worker.model.kv_dtype == base::DType::kF32 ? plan::RowType::kF32
                                                                           : plan::RowType::kBf16,
                         plan::Mtp::kOff);
  for (const std::int64_t context : plan::contexts_up_to(launch.max_model_len)) {
    report.contexts.push_back(
        plan::fit(report.shape, report.budget, context, launch.worker.max_sequences));
  }
  report.use = plan::use_of(report.shape, report.budget, report.contexts.back());
  add_launch_speeds(geometry, launch, report);
  add_launch_flags(settings, launch, report);
  report.notes.push_back("pages in host memory are read in place, as fast as resident ones");
  add_fit_notes(report);
  add_disk_note(settings, report);
  return report;
}

}  // namespace hisparse::app
