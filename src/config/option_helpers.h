// One option at a time: its flag, its environment variable and its default in the help.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "config/server_config.h"

namespace hisparse::config {

// Limits that several subcommands share.
inline constexpr std::int64_t kMaxModelLength = std::int64_t{1} << 24;
inline constexpr std::int32_t kMaxThreads = 1024;

// HISPARSE_MAX_MODEL_LEN for --max-model-len.
std::string environment_name(const std::string& option);

template <typename T>
CLI::Option* add_option(CLI::App& command, const std::string& name, T& target,
                        const std::string& help) {
  // The first of several names counts.
  return command.add_option("--" + name, target, help)
      ->envname(environment_name(name.substr(0, name.find(','))))
      ->capture_default_str();
}

// Sizes in bytes, with an optional unit (KiB, MiB, GiB; kB and so on are powers of 1000).
CLI::Option* add_bytes(CLI::App& command, const std::string& name, std::int64_t& target,
                       const std::string& help);

}  // namespace hisparse::config
