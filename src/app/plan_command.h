// `hisparse plan`: what fits on a machine, without loading anything.
#pragma once

#include "config/server_config.h"

namespace hisparse::app {

// Reads the facts of the model and prints the plan. Returns the exit code: 0; 1 when the model
// cannot be read or the configuration does not fit.
int run_plan(const config::PlanSettings& settings);

}  // namespace hisparse::app
