// UTF-8 checks and decoding for untrusted bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hisparse::text {

enum class Utf8Unit {
  kCodePoint,   // a complete, valid sequence
  kBad,         // a maximal bad subpart: no continuation could make it valid
  kIncomplete,  // a valid beginning, cut off by the end of the bytes
};

struct Utf8Scan {
  Utf8Unit unit;
  std::size_t length;  // bytes, at least 1
};

// Classifies what stands at `position` (less than bytes.size()) of arbitrary bytes.
Utf8Scan scan_utf8(std::string_view bytes, std::size_t position);

bool is_valid_utf8(std::string_view bytes);

// Replaces each maximal bad subpart by U+FFFD (Unicode chapter 3, "U+FFFD substitution of maximal
// subparts"); valid input comes back unchanged.
std::string to_valid_utf8(std::string_view bytes);

// Decodes the code point at `position` of valid UTF-8 and moves `position` behind it.
char32_t next_code_point(std::string_view valid_utf8, std::size_t& position);

// Appends `code_point` (a Unicode scalar value) to `out`.
void append_utf8(char32_t code_point, std::string& out);

}  // namespace hisparse::text
