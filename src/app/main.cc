// The composition root.
#include <cstdio>
#include <iostream>
#include <span>
#include <string>

#include "app/generate_command.h"
#include "app/serve_command.h"
#include "app/version.h"
#include "base/log.h"
#include "config/command_line.h"

namespace {

using hisparse::config::Command;

int run(const hisparse::config::Settings& settings) {
  if (settings.command == Command::kVersion) {
    std::printf("hisparse %s\n", hisparse::app::kVersion);
    return 0;
  }
  const bool serve = settings.command == Command::kServe;
  const auto& engine = serve ? settings.serve.engine : settings.generate.engine;
  if (absl::Status status = hisparse::base::set_up_logging(engine.log_level); !status.ok()) {
    std::fprintf(stderr, "hisparse: %s\n", std::string(status.message()).c_str());
    return hisparse::config::kUsageError;
  }
  return serve ? hisparse::app::run_serve(settings.serve)
               : hisparse::app::run_generate(settings.generate);
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = hisparse::config::parse_command_line(
      std::span<const char* const>(argv, static_cast<std::size_t>(argc)), std::cout, std::cerr);
  if (const auto* exit = std::get_if<hisparse::config::Exit>(&parsed)) return exit->code;
  return run(std::get<hisparse::config::Settings>(parsed));
}
