#include "api/field_reader.h"

#include <cmath>

namespace hisparse::api {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr double kMaxExactInteger = 9007199254740992.0;  // 2^53

}  // namespace

std::optional<std::string_view> text_of(element value) {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) return std::nullopt;
  // Not every version of simdjson refuses a lone surrogate ("\udc00").
  if (!simdjson::validate_utf8(text.data(), text.size())) return std::nullopt;
  return text;
}

std::optional<std::int64_t> integer_of(element value) {
  std::int64_t integer = 0;
  if (value.get(integer) == simdjson::SUCCESS) return integer;
  double number = 0;
  if (value.type() != element_type::DOUBLE || value.get(number) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  if (std::abs(number) > kMaxExactInteger || std::trunc(number) != number) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

std::optional<element> FieldReader::find(std::string_view name) const {
  std::optional<element> found;
  for (const auto field : object_) {
    if (field.key == name) found = field.value;
  }
  if (found && found->is_null()) return std::nullopt;
  return found;
}

std::optional<double> FieldReader::number(std::string_view name) {
  const auto value = find(name);
  if (!value) return std::nullopt;
  double number = 0;
  if (!require(value->get(number) == simdjson::SUCCESS, name, "must be a number")) {
    return std::nullopt;
  }
  return number;
}

std::optional<std::int64_t> FieldReader::integer(std::string_view name) {
  const auto value = find(name);
  if (!value) return std::nullopt;
  const auto integer = integer_of(*value);
  require(integer.has_value(), name, "must be an integer");
  return integer;
}

std::optional<std::uint64_t> FieldReader::unsigned_or_signed(std::string_view name) {
  std::uint64_t large = 0;
  const auto value = find(name);
  if (value && value->get(large) == simdjson::SUCCESS) return large;
  const auto integer_value = integer(name);
  if (!integer_value) return std::nullopt;
  return static_cast<std::uint64_t>(*integer_value);
}

std::optional<bool> FieldReader::boolean(std::string_view name) {
  const auto value = find(name);
  if (!value) return std::nullopt;
  bool flag = false;
  if (!require(value->get(flag) == simdjson::SUCCESS, name, "must be true or false")) {
    return std::nullopt;
  }
  return flag;
}

std::optional<std::string> FieldReader::string(std::string_view name) {
  const auto value = find(name);
  if (!value) return std::nullopt;
  const auto text = text_of(*value);
  if (!require(text.has_value(), name, "must be a string of valid Unicode")) return std::nullopt;
  return std::string(*text);
}

std::optional<simdjson::dom::array> FieldReader::array(std::string_view name) {
  const auto value = find(name);
  if (!value) return std::nullopt;
  simdjson::dom::array array;
  if (!require(value->get(array) == simdjson::SUCCESS, name, "must be an array")) {
    return std::nullopt;
  }
  return array;
}

std::optional<simdjson::dom::object> FieldReader::object(std::string_view name) {
  const auto value = find(name);
  if (!value) return std::nullopt;
  simdjson::dom::object object;
  if (!require(value->get(object) == simdjson::SUCCESS, name, "must be an object")) {
    return std::nullopt;
  }
  return object;
}

bool FieldReader::require(bool condition, std::string_view name, std::string_view rule) {
  if (!condition) fail_value(name, rule);
  return condition;
}

void FieldReader::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void FieldReader::fail_value(std::string_view name, std::string_view rule) {
  const std::string field = full_name(name);
  fail(invalid_value(field, "'" + field + "' " + std::string(rule) + "."));
}

}  // namespace hisparse::api
