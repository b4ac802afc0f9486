#include "config/option_helpers.h"

#include <cctype>

namespace hisparse::config {

std::string environment_name(const std::string& option) {
  std::string name = "HISPARSE_";
  for (char c : option) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

CLI::Option* add_bytes(CLI::App& command, const std::string& name, std::int64_t& target,
                       const std::string& help) {
  return add_option(command, name, target, help)->transform(CLI::AsSizeValue(true));
}

}  // namespace hisparse::config
