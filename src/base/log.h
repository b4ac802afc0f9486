// Logging set-up. Log through spdlog's default logger: spdlog::info("loaded {} tensors", n).
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hisparse::base {

// Sends the default logger to standard error with time and level. `level` is one of trace, debug,
// info, warn, error, off. Main thread, once.
absl::Status set_up_logging(const std::string& level);

}  // namespace hisparse::base
