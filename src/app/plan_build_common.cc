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

void add_tier_flags(const config::EngineSettings& engine, std::vector<std::string>& flags) {
  if (engine.kv_tiering == config::KvTiering::kOff) return;
  flags.push_back("--kv-tiering hybrid");
  flags.push_back("--swap-space " + number("%.10g", engine.swap_space));
  if (!engine.kv_disk_path.empty()) {
    flags.push_back("--kv-disk-path " + engine.kv_disk_path);
    flags.push_back("--kv-disk-space " + std::to_string(engine.kv_disk_space));
  }
  if (engine.kv_eager_mirror) flags.push_back("--kv-eager-mirror");
  if (engine.kv_disk_persist) flags.push_back("--kv-disk-persist");
  const config::EngineSettings defaults;
  if (engine.kv_cache_profiling_window != defaults.kv_cache_profiling_window) {
    flags.push_back("--kv-cache-profiling-window " +
                    std::to_string(engine.kv_cache_profiling_window));
  }
}

void add_fit_notes(PlanReport& report) {
  const plan::ContextCapacity& longest = report.contexts.back();
  std::vector<std::string>& notes = report.notes;
  const std::int64_t below = longest.context * report.shape.rows.host;
  if (longest.requests == 0) {
    notes.push_back("not one request of " + std::to_string(longest.context) +
                    " tokens fits: all its rows take " + gib(below) +
                    " below the device; give --host-gib or a smaller --max-model-len");
  } else if (report.budget.host == 0 && report.budget.disk == 0) {
    notes.push_back("no lower tier: each spilled request of " + std::to_string(longest.context) +
                    " tokens would take " + gib(below) + " of --host-gib");
  }
  if (report.hot_rows == 0 && longest.spilled > 0) {
    notes.push_back(
        "dense attention reads every row in every step (class E0): spilled requests decode no "
        "faster than the ceilings of their tier, whatever the batch");
  }
}

}  // namespace hisparse::app
