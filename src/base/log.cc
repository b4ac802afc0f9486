#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <string_view>

namespace hisparse::base {

absl::Status set_up_logging(const std::string& level) {
  constexpr std::array<std::string_view, 6> kLevels = {"trace", "debug", "info",
                                                       "warn",  "error", "off"};
  bool known = false;
  for (std::string_view name : kLevels) known = known || name == level;
  if (!known) {
    return absl::InvalidArgumentError("log level '" + level +
                                      "' is unknown: use trace, debug, info, warn, error or off");
  }
  auto logger = spdlog::stderr_color_mt("hisparse");
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

}  // namespace hisparse::base
