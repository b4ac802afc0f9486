// Key/value facts that come with a checkpoint: GGUF metadata, or a config.json flattened to dotted
// keys ("rope_scaling.factor"). Plain values: JSON stays inside the readers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace hisparse::format {

// Integers of any width arrive as int64 (an unsigned 64-bit value that does not fit is refused by
// the reader). A JSON null is an absent key. Lists are homogeneous; an empty list is an empty
// string list.
using MetadataValue =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                 std::vector<double>, std::vector<std::string>>;

// Immutable after the reader has built it; any thread may read. Errors name the key, what was
// expected and what was found.
class Metadata {
 public:
  Metadata() = default;
  explicit Metadata(std::map<std::string, MetadataValue, std::less<>> values);

  bool has(std::string_view key) const;
  const MetadataValue* find(std::string_view key) const;  // null when absent

  // Required values: NotFound when absent, InvalidArgument when of another kind. get_double also
  // takes an integer. get_int takes only integers (a double with an integral value is refused).
  absl::StatusOr<std::int64_t> get_int(std::string_view key) const;
  absl::StatusOr<double> get_double(std::string_view key) const;
  absl::StatusOr<bool> get_bool(std::string_view key) const;
  absl::StatusOr<std::string> get_string(std::string_view key) const;

  // As above with a value for an absent key; a present key of the wrong kind is still an error.
  absl::StatusOr<std::int64_t> int_or(std::string_view key, std::int64_t fallback) const;
  absl::StatusOr<double> double_or(std::string_view key, double fallback) const;
  absl::StatusOr<bool> bool_or(std::string_view key, bool fallback) const;
  absl::StatusOr<std::string> string_or(std::string_view key, std::string fallback) const;

  // The list under `key`, without a copy; NotFound / InvalidArgument as above. Valid as long as
  // *this.
  absl::StatusOr<const std::vector<std::string>*> get_strings(std::string_view key) const;
  absl::StatusOr<const std::vector<std::int64_t>*> get_ints(std::string_view key) const;

  const std::map<std::string, MetadataValue, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, MetadataValue, std::less<>> values_;
};

}  // namespace hisparse::format
