// Settings from a YAML file, laid under what a command line and the environment have set.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"

namespace hisparse::config {

// Reads a mapping of long option names (without dashes in front) to scalars or lists of scalars and
// gives each to the option of that name in `command`, unless that option is set already. Errors
// name the file, the line and the key: unknown keys, nested values, values that the option refuses.
absl::Status apply_yaml_file(const std::string& path, CLI::App& command);

}  // namespace hisparse::config
