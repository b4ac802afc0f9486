#include "format/json_metadata.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "format/json_parse.h"
#include "format/untrusted_text.h"

namespace hisparse::format {
namespace {

using Json = nlohmann::json;

// A long key is repeated in front of each of its members: unbounded, a small file fills the memory.
constexpr std::size_t kLongestKeyBytes = 1024;

bool all_of(const Json& list, bool (*test)(const Json&)) {
  return std::all_of(list.begin(), list.end(), test);
}

template <typename T>
std::vector<T> elements_as(const Json& list) {
  std::vector<T> out;
  out.reserve(list.size());
  for (const Json& element : list) out.push_back(element.get<T>());
  return out;
}

// Empty when the list is not of one scalar kind.
std::optional<MetadataValue> as_scalar_list(const Json& list) {
  if (all_of(list, [](const Json& e) { return e.is_string(); })) {
    return elements_as<std::string>(list);
  }
  if (all_of(list, [](const Json& e) { return e.is_number_integer(); })) {
    return elements_as<std::int64_t>(list);
  }
  if (all_of(list, [](const Json& e) { return e.is_number(); })) {
    return elements_as<double>(list);
  }
  if (all_of(list, [](const Json& e) { return e.is_boolean(); })) {
    std::vector<std::int64_t> flags;
    for (const Json& element : list) flags.push_back(element.get<bool>() ? 1 : 0);
    return flags;
  }
  return std::nullopt;
}

std::optional<MetadataValue> as_single_value(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) return as_scalar_list(value);
  return std::nullopt;
}

class Flattener final {
 public:
  explicit Flattener(std::string_view file) : file_(file) {}

  // Recursion is bounded by the depth limit of the parser.
  absl::Status add(const std::string& key, const Json& value) {
    if (key.size() > kLongestKeyBytes) {
      return bad_file(file_, "key " + in_quotes(key) + " is longer than " +
                                 std::to_string(kLongestKeyBytes) + " bytes when flattened");
    }
    if (value.is_null()) return absl::OkStatus();
    if (value.is_object()) return add_members(key + ".", value);
    std::optional<MetadataValue> single = as_single_value(value);
    if (!single) return add_elements(key + ".", value);
    if (!values_.emplace(key, *std::move(single)).second) {
      return bad_file(file_, "two members flatten to the key " + in_quotes(key));
    }
    return absl::OkStatus();
  }

  absl::Status add_members(const std::string& prefix, const Json& object) {
    for (const auto& [name, member] : object.items())
      HS_RETURN_IF_ERROR(add(prefix + name, member));
    return absl::OkStatus();
  }

  MetadataMap take() { return std::move(values_); }

 private:
  absl::Status add_elements(const std::string& prefix, const Json& list) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      HS_RETURN_IF_ERROR(add(prefix + std::to_string(i), list[i]));
    }
    return absl::OkStatus();
  }

  const std::string_view file_;
  MetadataMap values_;
};

}  // namespace

absl::StatusOr<MetadataMap> parse_json_metadata(std::string_view text, std::string_view file,
                                                std::string_view key_prefix) {
  HS_ASSIGN_OR_RETURN(const Json document, parse_json_object(text, file, kConfigLimits));
  Flattener flattener(file);
  HS_RETURN_IF_ERROR(flattener.add_members(std::string(key_prefix), document));
  return flattener.take();
}

}  // namespace hisparse::format
