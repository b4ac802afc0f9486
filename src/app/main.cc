// The composition root.
#include <cstdio>
#include <iostream>
#include <span>
#include <string>

#include "app/bench_command.h"
#include "app/generate_command.h"
#include "app/plan_command.h"
#include "app/serve_command.h"
#include "app/version.h"
#include "base/log.h"
#include "config/command_line.h"

namespace {

using hisparse::config::Command;

int run(const hisparse::config::Settings& settings) {
  switch (settings.command) {
    case Command::kServe:
      return hisparse::app::run_serve(settings.serve);
    case Command::kGenerate:
      return hisparse::app::run_generate(settings.generate);
    case Command::kBench:
      return hisparse::app::run_bench(settings.bench);
    case Command::kPlan:
      return hisparse::app::run_plan(settings.plan);
    case Command::kVersion:
      std::printf("hisparse %s\n", hisparse::app::kVersion);
      return 0;
  }
  return hisparse::config::kUsageError;
}

const std::string& log_level(const hisparse::config::Settings& settings) {
  if (settings.command == Command::kServe) return settings.serve.engine.log_level;
  if (settings.command == Command::kBench) return settings.bench.engine.log_level;
  if (settings.command == Command::kPlan) return settings.plan.engine.log_level;
  return settings.generate.engine.log_level;
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = hisparse::config::parse_command_line(
      std::span<const char* const>(argv, static_cast<std::size_t>(argc)), std::cout, std::cerr);
  if (const auto* exit = std::get_if<hisparse::config::Exit>(&parsed)) return exit->code;
  const auto& settings = std::get<hisparse::config::Settings>(parsed);
  if (absl::Status status = hisparse::base::set_up_logging(log_level(settings)); !status.ok()) {
    std::fprintf(stderr, "hisparse: %s\n", std::string(status.message()).c_str());
    return hisparse::config::kUsageError;
  }
  return run(settings);
}
