// `hisparse bench`: the speed of a model on this machine, without a server.
#pragma once

#include "config/server_config.h"

namespace hisparse::app {

// Loads the model as `serve` does, runs every point, prints the table and writes the JSON. Returns
// the exit code: 0; 1 when the start, a request or the writing failed; 128 plus the signal's number
// when SIGINT or SIGTERM ended it. In the last two cases what was measured before is printed.
int run_bench(const config::BenchSettings& settings);

}  // namespace hisparse::app
