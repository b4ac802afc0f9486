// Typed reading of one JSON object of a request, first error kept. Only for the .cc files of api/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/error.h"
#include "simdjson.h"

namespace hisparse::api {

// A view of a parsed object, which must outlive it. Every getter answers "not given" for an absent
// field, for null and after an error; of duplicate keys the last one counts, as in other servers.
class FieldReader {
 public:
  // `path` goes before the field names in errors: "stream_options." or "messages[2].".
  explicit FieldReader(simdjson::dom::object object, std::string path = {})
      : object_(object), path_(std::move(path)) {}

  std::optional<simdjson::dom::element> find(std::string_view name) const;
  bool given(std::string_view name) const { return find(name).has_value(); }

  std::optional<double> number(std::string_view name);
  std::optional<std::int64_t> integer(std::string_view name);  // takes 16.0 for 16
  // An integer of either kind, as its 64 bits.
  std::optional<std::uint64_t> unsigned_or_signed(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::string> string(std::string_view name);
  std::optional<simdjson::dom::array> array(std::string_view name);
  std::optional<simdjson::dom::object> object(std::string_view name);

  // Records invalid_value for `name` unless `condition`; returns `condition`.
  bool require(bool condition, std::string_view name, std::string_view rule);
  // Keeps the first error.
  void fail(ApiError error);
  void fail_value(std::string_view name, std::string_view rule);

  std::string full_name(std::string_view name) const { return path_ + std::string(name); }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  simdjson::dom::object object_;
  std::string path_;
  std::optional<ApiError> error_;
};

// The text of a JSON string, or nothing when it is no string or, through escapes, no valid UTF-8.
std::optional<std::string_view> text_of(simdjson::dom::element element);
// The value of a JSON number that is an integer in the range of int64.
std::optional<std::int64_t> integer_of(simdjson::dom::element element);

}  // namespace hisparse::api
