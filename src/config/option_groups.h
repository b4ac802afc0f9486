// The options of each subcommand, and what the check of a single option cannot see.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "config/server_config.h"

namespace hisparse::config {

// Each adds its options to `command`; the settings must outlive it and hold the defaults.
// `config_file` receives the name of the YAML file.
void add_engine_options(CLI::App& command, EngineSettings& engine, std::string& config_file);
void add_serve_options(CLI::App& command, ServeSettings& serve);
void add_generate_options(CLI::App& command, GenerateSettings& generate);
void add_bench_options(CLI::App& command, BenchSettings& bench);
// After add_engine_options(), some of whose options mean more here.
void add_plan_options(CLI::App& command, PlanSettings& plan);

// What does not fit together in parsed settings, as a message to the user; empty when all is well.
std::string find_conflict(const ServeSettings& serve);
std::string find_conflict(const GenerateSettings& generate);
std::string find_conflict(const BenchSettings& bench);
std::string find_conflict(const PlanSettings& plan);

// Writes what stands for engine settings (--host-gib, --max-num-seqs, --kv-cache-dtype) into them.
// After the YAML file, before find_conflict(). Returns what does not fit together in the options of
// `command`, empty when all is well.
std::string resolve_engine(const CLI::App& command, PlanSettings& plan);

// What the engine settings of every subcommand have in common. `sequences_option` is the option
// that decides how many requests run at a time.
std::string find_engine_conflict(const EngineSettings& engine, const std::string& sequences_option);

}  // namespace hisparse::config
