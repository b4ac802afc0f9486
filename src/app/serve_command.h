// `hisparse serve`: the server process from start to drain.
#pragma once

#include "config/server_config.h"

namespace hisparse::app {

// Loads the model, serves until SIGTERM or SIGINT, drains. Returns the exit code: 0 after a drain,
// 1 when start-up failed or the engine did. A second signal while draining ends the process at
// once.
int run_serve(const config::ServeSettings& settings);

}  // namespace hisparse::app
