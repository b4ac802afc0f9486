#include "app/plan_build_common.h"

#include <cstdio>
#include <filesystem>

namespace hisparse::app {
namespace {

constexpr double kGB = 1e9;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string gib(std::int64_t bytes) {
  return number("%.1f GiB", static_cast<double>(bytes) / kGiB);
}

const char* name_of(base::DiskIo io) {
  switch (io) {
    case base::DiskIo::kIoUring:
      return "io_uring";
    case base::DiskIo::kThreads:
      return "threads";
    case base::DiskIo::kAuto:
      break;
  }
  return "auto";
}

const char* name_of(base::IsaChoice isa) {
  switch (isa) {
    case base::IsaChoice::kX86_64V2:
      return "x86-64-v2";
    case base::IsaChoice::kX86_64V3:
      return "x86-64-v3";
    case base::IsaChoice::kX86_64V4:
      return "x86-64-v4";
    case base::IsaChoice::kBest:
      break;
  }
  return "auto";
}

void add_tier_flags(const config::EngineSettings& engine, std::vector<std::string>& flags) {
  const config::EngineSettings defaults;
  flags.push_back("--kv-tiering hybrid");
  flags.push_back("--swap-space " + number("%.10g", engine.swap_space));
  if (!engine.kv_disk_path.empty()) {
    flags.push_back("--kv-disk-path " + engine.kv_disk_path);
    flags.push_back("--kv-disk-space " + std::to_string(engine.kv_disk_space));
  }
  if (engine.kv_disk_io != defaults.kv_disk_io) {
    flags.push_back(std::string("--kv-disk-io ") + name_of(engine.kv_disk_io));
  }
  if (engine.kv_eager_mirror) flags.push_back("--kv-eager-mirror");
  if (engine.kv_disk_persist) flags.push_back("--kv-disk-persist");
  if (engine.kv_replan_tokens != defaults.kv_replan_tokens) {
    flags.push_back("--kv-replan-tokens " + std::to_string(engine.kv_replan_tokens));
  }
  if (engine.kv_cache_profiling_window != defaults.kv_cache_profiling_window) {
    flags.push_back("--kv-cache-profiling-window " +
                    std::to_string(engine.kv_cache_profiling_window));
  }
}

// Why not one request of the longest context fits, and what to change.
std::string nothing_fits(const PlanReport& report) {
  const plan::ContextCapacity& longest = report.contexts.back();
  const plan::TokenRows& rows = report.shape.rows;
  const std::string text = "not one request of " + std::to_string(longest.context) + " tokens fits";
  if (longest.device_limit >= 1.0) {
    return text + ": all its rows take " + gib(longest.context * rows.host) +
           " below the device; give that much --host-gib or a smaller --max-model-len";
  }
  const std::string more =
      ", or give KV pages more of the device (--gpu-memory-utilization, --kv-cache-memory-bytes, "
      "more GPUs)";
  const std::string of_device =
      " of each device, which has " + gib(report.budget.device) + " for KV pages: ";
  if (report.hot_rows == 0) {
    return text + ": the page that it writes takes " + gib(rows.rank() * report.shape.page_tokens) +
           of_device + "lower --block-size" + more;
  }
  return text + ", not even spilled: its index keys and hot rows take " +
         gib(longest.context * rows.stays + report.shape.hot_bytes) + of_device +
         "lower --max-model-len or --hot-rows" + more;
}

}  // namespace

void override_bandwidths(const config::PlanSettings& settings, plan::Bandwidths& bandwidths) {
  const auto replace = [](double gbps, double& bandwidth) {
    if (gbps > 0.0) bandwidth = gbps * kGB;
  };
  replace(settings.memory_gbps, bandwidths.memory);
  replace(settings.link_gbps, bandwidths.stream);
  replace(settings.gather_gbps, bandwidths.gather);
  replace(settings.disk_gbps, bandwidths.disk);
}

std::string base_name(const std::string& path) {
  const std::filesystem::path name(path);
  return name.has_filename() ? name.filename().string() : name.parent_path().filename().string();
}

std::vector<std::int64_t> batches_up_to(std::int64_t most) {
  std::vector<std::int64_t> batches;
  for (const std::int64_t batch : {std::int64_t{1}, std::int64_t{8}, most}) {
    if (batch >= 1 && batch <= most && (batches.empty() || batch > batches.back()))
      batches.push_back(batch);
  }
  return batches;
}

void add_engine_flags(const config::EngineSettings& engine, std::vector<std::string>& flags) {
  const config::EngineSettings defaults;
  if (engine.kv_tiering == config::KvTiering::kHybrid) add_tier_flags(engine, flags);
  if (!engine.enable_prefix_caching) flags.push_back("--no-enable-prefix-caching");
  if (engine.max_preemptions != defaults.max_preemptions) {
    flags.push_back("--max-preemptions " + std::to_string(engine.max_preemptions));
  }
  if (engine.threads != defaults.threads) {
    flags.push_back("--threads " + std::to_string(engine.threads));
  }
  if (engine.cpu_isa != defaults.cpu_isa) {
    flags.push_back(std::string("--cpu-isa ") + name_of(engine.cpu_isa));
  }
}

void add_fit_notes(PlanReport& report) {
  const plan::ContextCapacity& longest = report.contexts.back();
  std::vector<std::string>& notes = report.notes;
  if (longest.requests == 0) {
    notes.push_back(nothing_fits(report));
  } else if (report.budget.host == 0 && report.budget.disk == 0) {
    notes.push_back("no lower tier: each spilled request of " + std::to_string(longest.context) +
                    " tokens would take " + gib(longest.context * report.shape.rows.host) +
                    " of --host-gib");
  }
  if (report.hot_rows == 0 && longest.spilled > 0) {
    notes.push_back(
        "dense attention reads every row in every step (class E0): spilled requests decode no "
        "faster than the ceilings of their tier, whatever the batch");
  }
}

void add_disk_note(const config::PlanSettings& settings, PlanReport& report) {
  if (report.budget.disk == 0 || !settings.disk_gbps_assumed) return;
  report.notes.push_back("the disk's " + number("%.1f GB/s", settings.disk_gbps) +
                         " are assumed: measure yours and give --disk-gbps");
}

}  // namespace hisparse::app
