// Command line, environment and YAML file -> Settings.
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <variant>

#include "config/server_config.h"

namespace hisparse::config {

// The program should end at once with this exit code; what there was to say has been printed.
struct Exit {
  int code = 0;
};

inline constexpr int kUsageError = 2;

// Flags win over HISPARSE_<NAME> in the environment, which wins over the YAML file of --config,
// which wins over the defaults. Unknown flags, unknown YAML keys and values out of range are
// errors: printed to `errors`, exit code 2. Help goes to `out`, exit code 0. Main thread, before
// any other thread: it is the only reader of the environment.
std::variant<Settings, Exit> parse_command_line(std::span<const char* const> arguments,
                                                std::ostream& out, std::ostream& errors);

}  // namespace hisparse::config
