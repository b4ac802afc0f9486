#include "config/yaml_options.h"

#include <yaml-cpp/yaml.h>

#include <set>
#include <vector>

#include "base/status.h"

namespace hisparse::config {
namespace {

absl::Status error_at(const std::string& path, const YAML::Node& node, const std::string& what) {
  return absl::InvalidArgumentError(path + ":" + std::to_string(node.Mark().line + 1) + ": " +
                                    what);
}

absl::Status apply_entry(const std::string& path, const YAML::Node& key, const YAML::Node& value,
                         CLI::App& command) {
  if (!key.IsScalar()) return error_at(path, key, "a key must be an option's name");
  const std::string name = key.Scalar();
  CLI::Option* option = command.get_option_no_throw("--" + name);
  if (option == nullptr || name == "config" || name == "help") {
    return error_at(path, key, "unknown key '" + name + "'");
  }
  const bool is_switch = option->get_expected_min() == 0;
  std::vector<std::string> values;
  if (value.IsScalar()) {
    values.push_back(value.Scalar());
  } else if (is_switch) {  // CLI11 would read the first value of an empty list
    return error_at(path, key, "'" + name + "' takes true or false");
  } else if (value.IsSequence()) {
    for (const YAML::Node& item : value) {
      if (!item.IsScalar()) return error_at(path, item, "'" + name + "' takes plain values");
      values.push_back(item.Scalar());
    }
  } else {
    return error_at(path, key, "'" + name + "' takes a value or a list of values");
  }
  if (option->count() > 0) return absl::OkStatus();
  try {
    // A switch takes true or false under its own name, as on the command line (--switch=false).
    for (const std::string& text : values) {
      option->add_result(is_switch ? option->get_flag_value(name, text) : text);
    }
    option->run_callback();
  } catch (const CLI::Error& error) {
    return error_at(path, value, error.what());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status apply_yaml_file(const std::string& path, CLI::App& command) {
  YAML::Node document;
  try {
    document = YAML::LoadFile(path);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(path + ": " + error.what());
  }
  if (document.IsNull()) return absl::OkStatus();
  if (!document.IsMap()) {
    return absl::InvalidArgumentError(path + ": the file must hold 'option: value' lines");
  }
  std::set<std::string> seen;
  for (const auto& entry : document) {
    if (entry.first.IsScalar() && !seen.insert(entry.first.Scalar()).second) {
      return error_at(path, entry.first, "'" + entry.first.Scalar() + "' is there twice");
    }
    HS_RETURN_IF_ERROR(apply_entry(path, entry.first, entry.second, command));
  }
  return absl::OkStatus();
}

}  // namespace hisparse::config
