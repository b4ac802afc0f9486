// From settings to the report of `hisparse plan`. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "app/plan_report.h"
#include "config/server_config.h"
#include "engine/launch.h"
#include "plan/geometry.h"

namespace hisparse::app {

// For the machine of `settings.gpus`. Errors name the flag or key to change.
absl::StatusOr<PlanReport> report_gpus(const config::PlanSettings& settings,
                                       const plan::ModelGeometry& geometry);

// For this machine, from what a server with these settings would decide. `geometry` of the same
// checkpoint; `memory_limit`: bytes that may be taken, 0 where not known.
PlanReport report_launch(const config::PlanSettings& settings, const plan::ModelGeometry& geometry,
                         const engine::LaunchPlan& launch, std::int64_t memory_limit);

}  // namespace hisparse::app
