// `hisparse generate`: one answer on standard output.
#pragma once

#include "config/server_config.h"

namespace hisparse::app {

// Streams the answer to standard output as it comes. Returns the exit code.
int run_generate(const config::GenerateSettings& settings);

}  // namespace hisparse::app
