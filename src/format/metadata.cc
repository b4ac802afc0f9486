#include "format/metadata.h"

#include <type_traits>
#include <utility>

#include "format/untrusted_text.h"

namespace hisparse::format {
namespace {

template <typename T>
constexpr const char* kKindName = "";
template <>
constexpr const char* kKindName<bool> = "a boolean";
template <>
constexpr const char* kKindName<std::int64_t> = "an integer";
template <>
constexpr const char* kKindName<double> = "a floating-point number";
template <>
constexpr const char* kKindName<std::string> = "a string";
template <>
constexpr const char* kKindName<std::vector<std::int64_t>> = "a list of integers";
template <>
constexpr const char* kKindName<std::vector<double>> = "a list of floating-point numbers";
template <>
constexpr const char* kKindName<std::vector<std::string>> = "a list of strings";

const char* kind_of(const MetadataValue& value) {
  return std::visit([](const auto& held) { return kKindName<std::decay_t<decltype(held)>>; },
                    value);
}

absl::Status absent(std::string_view key) {
  return absl::NotFoundError("metadata key " + in_quotes(key) + " is required and absent");
}

template <typename T>
absl::Status wrong_kind(std::string_view key, const MetadataValue& found) {
  return absl::InvalidArgumentError("metadata key " + in_quotes(key) + " must be " + kKindName<T> +
                                    " and is " + kind_of(found));
}

template <typename T>
absl::StatusOr<T> as(std::string_view key, const MetadataValue& value) {
  if (const T* held = std::get_if<T>(&value)) return *held;
  if constexpr (std::is_same_v<T, double>) {
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      return static_cast<double>(*integer);
    }
  }
  return wrong_kind<T>(key, value);
}

template <typename T>
absl::StatusOr<T> get(const Metadata& metadata, std::string_view key) {
  const MetadataValue* value = metadata.find(key);
  if (value == nullptr) return absent(key);
  return as<T>(key, *value);
}

template <typename T>
absl::StatusOr<T> get_or(const Metadata& metadata, std::string_view key, T fallback) {
  const MetadataValue* value = metadata.find(key);
  if (value == nullptr) return fallback;
  return as<T>(key, *value);
}

}  // namespace

Metadata::Metadata(std::map<std::string, MetadataValue, std::less<>> values)
    : values_(std::move(values)) {}

bool Metadata::has(std::string_view key) const { return find(key) != nullptr; }

const MetadataValue* Metadata::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

absl::StatusOr<std::int64_t> Metadata::get_int(std::string_view key) const {
  return get<std::int64_t>(*this, key);
}

absl::StatusOr<double> Metadata::get_double(std::string_view key) const {
  return get<double>(*this, key);
}

absl::StatusOr<bool> Metadata::get_bool(std::string_view key) const {
  return get<bool>(*this, key);
}

absl::StatusOr<std::string> Metadata::get_string(std::string_view key) const {
  return get<std::string>(*this, key);
}

absl::StatusOr<std::int64_t> Metadata::int_or(std::string_view key, std::int64_t fallback) const {
  return get_or<std::int64_t>(*this, key, fallback);
}

absl::StatusOr<double> Metadata::double_or(std::string_view key, double fallback) const {
  return get_or<double>(*this, key, fallback);
}

absl::StatusOr<bool> Metadata::bool_or(std::string_view key, bool fallback) const {
  return get_or<bool>(*this, key, fallback);
}

absl::StatusOr<std::string> Metadata::string_or(std::string_view key, std::string fallback) const {
  return get_or<std::string>(*this, key, std::move(fallback));
}

absl::StatusOr<const std::vector<std::string>*> Metadata::get_strings(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return absent(key);
  if (const auto* list = std::get_if<std::vector<std::string>>(value)) return list;
  return wrong_kind<std::vector<std::string>>(key, *value);
}

absl::StatusOr<const std::vector<std::int64_t>*> Metadata::get_ints(std::string_view key) const {
  static const std::vector<std::int64_t> kNone;
  const MetadataValue* value = find(key);
  if (value == nullptr) return absent(key);
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(value)) return list;
  // An empty list is held as strings, whatever it was meant to hold.
  const auto* strings = std::get_if<std::vector<std::string>>(value);
  if (strings != nullptr && strings->empty()) return &kNone;
  return wrong_kind<std::vector<std::int64_t>>(key, *value);
}

}  // namespace hisparse::format
