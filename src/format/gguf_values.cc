#include "format/gguf_values.h"

#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "format/untrusted_text.h"

namespace hisparse::format {
namespace {

enum GgufType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Held in memory, an element is up to 32 times as large as in the file; vocabularies and merge
// lists stay below 2^20.
constexpr std::uint64_t kMostElements = 1u << 24;

// The bytes of an element at its shortest; 0 for a type that is not known or not allowed in an
// array.
std::uint64_t smallest_bytes(std::uint32_t type) {
  switch (type) {
    case kU8:
    case kI8:
    case kBool:
      return 1;
    case kU16:
    case kI16:
      return 2;
    case kU32:
    case kI32:
    case kF32:
      return 4;
    case kString:
    case kU64:
    case kI64:
    case kF64:
      return 8;
    default:
      return 0;
  }
}

}  // namespace

absl::Status GgufValueReader::bad_value(std::string_view key, std::string_view reason) const {
  return bad_file(file_name_, "metadata key " + in_quotes(key) + " " + std::string(reason));
}

absl::Status GgufValueReader::truncated(std::string_view key) const {
  return bad_value(key, "has a value that runs past the end of the file (at byte " +
                            std::to_string(cursor_.position()) +
                            "); the file is truncated or damaged: fetch it again");
}

template <typename Stored>
absl::StatusOr<std::int64_t> GgufValueReader::read_integer(std::string_view key) {
  const std::optional<Stored> value = cursor_.read<Stored>();
  if (!value) return truncated(key);
  if constexpr (std::is_same_v<Stored, std::uint64_t>) {
    if (*value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return bad_value(key,
                       "is " + std::to_string(*value) + ", which does not fit in 64 signed bits");
    }
  }
  return static_cast<std::int64_t>(*value);
}

absl::StatusOr<bool> GgufValueReader::read_bool(std::string_view key) {
  const std::optional<std::uint8_t> value = cursor_.read<std::uint8_t>();
  if (!value) return truncated(key);
  if (*value > 1) {
    return bad_value(key,
                     "has the boolean byte " + std::to_string(*value) + "; 0 and 1 are allowed");
  }
  return *value == 1;
}

absl::StatusOr<std::string> GgufValueReader::read_text(std::string_view key) {
  const std::optional<std::string_view> text = cursor_.read_string();
  if (!text) return truncated(key);
  if (!is_valid_utf8(*text))
    return bad_value(key, "has text that is not UTF-8: " + in_quotes(*text));
  return std::string(*text);
}

absl::StatusOr<MetadataValue> GgufValueReader::read_scalar(std::string_view key,
                                                           std::uint32_t type) {
  switch (type) {
    case kU8:
      return read_integer<std::uint8_t>(key);
    case kI8:
      return read_integer<std::int8_t>(key);
    case kU16:
      return read_integer<std::uint16_t>(key);
    case kI16:
      return read_integer<std::int16_t>(key);
    case kU32:
      return read_integer<std::uint32_t>(key);
    case kI32:
      return read_integer<std::int32_t>(key);
    case kU64:
      return read_integer<std::uint64_t>(key);
    case kI64:
      return read_integer<std::int64_t>(key);
    case kBool:
      return read_bool(key);
    case kString:
      return read_text(key);
    case kF32: {
      const std::optional<float> value = cursor_.read<float>();
      if (!value) return truncated(key);
      return static_cast<double>(*value);
    }
    case kF64: {
      const std::optional<double> value = cursor_.read<double>();
      if (!value) return truncated(key);
      return *value;
    }
    default:
      return bad_value(key, "has the unknown type " + std::to_string(type));
  }
}

absl::StatusOr<MetadataValue> GgufValueReader::read_elements(std::string_view key,
                                                             std::uint32_t type,
                                                             std::uint64_t count) {
  std::vector<std::int64_t> integers;
  std::vector<double> reals;
  std::vector<std::string> strings;
  for (std::uint64_t i = 0; i < count; ++i) {
    absl::StatusOr<MetadataValue> element = read_scalar(key, type);
    if (!element.ok()) {
      return absl::InvalidArgumentError(std::string(element.status().message()) + " (element " +
                                        std::to_string(i) + " of " + std::to_string(count) + ")");
    }
    if (auto* text = std::get_if<std::string>(&*element)) {
      strings.push_back(std::move(*text));
    } else if (const auto* real = std::get_if<double>(&*element)) {
      reals.push_back(*real);
    } else if (const auto* flag = std::get_if<bool>(&*element)) {
      integers.push_back(*flag ? 1 : 0);
    } else {
      integers.push_back(std::get<std::int64_t>(*element));
    }
  }
  if (!integers.empty()) return integers;
  if (!reals.empty()) return reals;
  return strings;
}

absl::StatusOr<MetadataValue> GgufValueReader::read_array(std::string_view key) {
  const std::optional<std::uint32_t> type = cursor_.read<std::uint32_t>();
  const std::optional<std::uint64_t> count = type ? cursor_.read<std::uint64_t>() : std::nullopt;
  if (!count) return truncated(key);
  if (*type == kArray) return bad_value(key, "is an array of arrays, which is not supported");
  const std::uint64_t element_bytes = smallest_bytes(*type);
  if (element_bytes == 0) {
    return bad_value(key, "is an array of the unknown type " + std::to_string(*type));
  }
  if (*count > cursor_.remaining() / element_bytes) {
    return bad_value(key, "claims " + std::to_string(*count) + " elements, but only " +
                              std::to_string(cursor_.remaining()) +
                              " bytes follow; the file is truncated or damaged: fetch it again");
  }
  if (*count > kMostElements - elements_) {
    return bad_value(key, "brings the array elements of the file above " +
                              std::to_string(kMostElements) + ", the most this reader takes");
  }
  elements_ += *count;
  return read_elements(key, *type, *count);
}

absl::StatusOr<MetadataValue> GgufValueReader::read(std::string_view key) {
  const std::optional<std::uint32_t> type = cursor_.read<std::uint32_t>();
  if (!type) return truncated(key);
  return *type == kArray ? read_array(key) : read_scalar(key, *type);
}

}  // namespace hisparse::format
