// Strict JSON for the readers of this folder; no header outside of it includes this one.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace hisparse::format {

struct JsonLimits {
  std::size_t max_bytes;
  std::size_t
      max_values;  // of all kinds, containers included: bounds the memory of the parsed form
  int max_depth;
};

// For small files written by people or tools: config.json.
inline constexpr JsonLimits kConfigLimits{16u << 20, 1u << 20, 32};
// For the headers and indexes of weights; the byte limit is that of the safetensors format.
inline constexpr JsonLimits kWeightIndexLimits{100'000'000, 4u << 20, 8};

// Parses one JSON document that must be an object and nothing behind it but whitespace. Beyond what
// the library checks (syntax, UTF-8) it refuses duplicate keys, NUL bytes, integers outside int64,
// and what exceeds `limits`. InvalidArgument names `file` and the reason.
absl::StatusOr<nlohmann::json> parse_json_object(std::string_view text, std::string_view file,
                                                 const JsonLimits& limits);

}  // namespace hisparse::format
