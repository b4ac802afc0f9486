#include "app/plan_command.h"

#include <spdlog/spdlog.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "app/plan_build.h"
#include "app/version.h"
#include "base/status.h"
#include "format/checkpoint.h"
#include "format/hugging_face.h"

namespace hisparse::app {
namespace {

// The readers of files name them already; the planner does not know them.
std::string message_of(const absl::Status& status, const std::string& path) {
  const std::string message(status.message());
  return message.starts_with(path) ? message : path + ": " + message;
}

// A config.json or a folder with one; anything else must be a checkpoint.
bool is_config(const std::string& path) {
  std::error_code ignored;  // shows again, with its reason, when the file is opened
  return path.ends_with(".json") || std::filesystem::is_directory(path, ignored);
}

absl::StatusOr<plan::ModelGeometry> checkpoint_geometry(const format::Checkpoint& checkpoint) {
  HS_ASSIGN_OR_RETURN(const model::ModelSpec spec, model::read_model_spec(checkpoint));
  std::int64_t bytes = 0;
  for (const format::TensorView& tensor : checkpoint.tensors()) {
    bytes += static_cast<std::int64_t>(tensor.bytes.size());
  }
  return plan::geometry_of(spec, bytes);
}

absl::StatusOr<PlanReport> plan_for_gpus(const config::PlanSettings& settings) {
  const std::string& path = settings.engine.model;
  if (is_config(path)) {
    HS_ASSIGN_OR_RETURN(const format::Metadata config, format::read_model_config(path));
    HS_ASSIGN_OR_RETURN(const plan::ModelGeometry geometry, plan::read_geometry(config));
    return report_gpus(settings, geometry);
  }
  HS_ASSIGN_OR_RETURN(const std::unique_ptr<format::Checkpoint> checkpoint,
                      format::Checkpoint::open(path));
  HS_ASSIGN_OR_RETURN(const plan::ModelGeometry geometry, checkpoint_geometry(*checkpoint));
  return report_gpus(settings, geometry);
}

// The same decisions as at the start of a server.
absl::StatusOr<PlanReport> plan_for_this_machine(const config::PlanSettings& settings) {
  const std::string& path = settings.engine.model;
  if (is_config(path)) {
    return absl::InvalidArgumentError(
        "a config.json is planned for GPUs: give --gpus, such as 8xH200 (for this machine, name "
        "the GGUF file that it would serve)");
  }
  HS_ASSIGN_OR_RETURN(const std::unique_ptr<format::Checkpoint> checkpoint,
                      format::Checkpoint::open(path));
  HS_ASSIGN_OR_RETURN(const plan::ModelGeometry geometry, checkpoint_geometry(*checkpoint));
  engine::LaunchOptions options;
  options.settings = settings.engine;
  HS_ASSIGN_OR_RETURN(const engine::LaunchPlan launch, engine::plan_launch(*checkpoint, options));
  return report_launch(settings, geometry, launch, engine::usable_memory());
}

}  // namespace

int run_plan(const config::PlanSettings& settings) {
  absl::StatusOr<PlanReport> report =
      settings.on_this_machine() ? plan_for_this_machine(settings) : plan_for_gpus(settings);
  if (!report.ok()) {
    spdlog::error("{}", message_of(report.status(), settings.engine.model));
    return 1;
  }
  report->version = kVersion;
  const std::string text = settings.json ? render_plan_json(*report) : render_plan(*report);
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return 0;
  }
  spdlog::error("the plan could not be written to standard output");
  return 1;
}

}  // namespace hisparse::app
