// The values of GGUF metadata (reference/models.md section 3.2).
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "format/gguf_cursor.h"
#include "format/metadata.h"

namespace hisparse::format {

// The bytes of a metadata pair at its shortest: an empty key, a type and a one-byte value.
inline constexpr std::uint64_t kSmallestGgufPairBytes = 13;

// Reads the values of one file's metadata, one call a pair. Not thread-safe.
class GgufValueReader final {
 public:
  GgufValueReader(GgufCursor& cursor, std::string_view file_name)
      : cursor_(cursor), file_name_(file_name) {}

  // The type tag and the value behind it, for the pair named `key`. Booleans in arrays become
  // integers 0 and 1, f32 becomes double. InvalidArgument: the file ends, an unknown type, a
  // boolean byte that is neither 0 nor 1, an unsigned value above int64, text that is not UTF-8, an
  // array of arrays (no known key has one), or more than 2^24 array elements in the whole file.
  absl::StatusOr<MetadataValue> read(std::string_view key);

 private:
  absl::Status bad_value(std::string_view key, std::string_view reason) const;
  absl::Status truncated(std::string_view key) const;
  absl::StatusOr<MetadataValue> read_scalar(std::string_view key, std::uint32_t type);
  absl::StatusOr<MetadataValue> read_array(std::string_view key);
  absl::StatusOr<MetadataValue> read_elements(std::string_view key, std::uint32_t type,
                                              std::uint64_t count);

  template <typename Stored>
  absl::StatusOr<std::int64_t> read_integer(std::string_view key);
  absl::StatusOr<bool> read_bool(std::string_view key);
  absl::StatusOr<std::string> read_text(std::string_view key);

  GgufCursor& cursor_;
  const std::string_view file_name_;
  std::uint64_t elements_ = 0;  // of all arrays so far
};

}  // namespace hisparse::format
