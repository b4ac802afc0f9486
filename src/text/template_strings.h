// Python's string methods on marked strings. The results keep their marks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/template_budget.h"
#include "text/template_value.h"

namespace hisparse::text::jinja {

enum class StripSide { kLeft, kRight, kBoth };
enum class LetterCase { kUpper, kLower };

// Strips the code points of `characters`, or whitespace.
MarkedString strip(const MarkedString& text, StripSide side,
                   std::optional<std::string_view> characters);

// Simple case mapping, one code point to one. Where Python maps one to several (the sharp s to
// "SS") or looks at the neighbours (final sigma), the result differs. Marked as a whole if any part
// was.
MarkedString change_case(const MarkedString& text, LetterCase to);

// `separator` is not empty; nullopt splits at runs of whitespace and drops empty parts. A negative
// `most_splits` sets no bound.
absl::StatusOr<List> split(const MarkedString& text, std::optional<std::string_view> separator,
                           std::int64_t most_splits, Budget& budget);

// `old` is not empty; a negative `most` sets no bound.
absl::StatusOr<Value> replace(const MarkedString& text, std::string_view old,
                              const MarkedString& replacement, std::int64_t most, Budget& budget);

// Code points of `text`.
std::int64_t length_of(std::string_view text);

}  // namespace hisparse::text::jinja
