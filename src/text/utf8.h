// UTF-8 checks and decoding for untrusted bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hisparse::text {

bool is_valid_utf8(std::string_view bytes);

// Replaces each maximal bad subpart by U+FFFD (Unicode chapter 3, "U+FFFD substitution of maximal
// subparts"); valid input comes back unchanged.
std::string to_valid_utf8(std::string_view bytes);

// Decodes the code point at `position` of valid UTF-8 and moves `position` behind it.
char32_t next_code_point(std::string_view valid_utf8, std::size_t& position);

// Appends `code_point` (a Unicode scalar value) to `out`.
void append_utf8(char32_t code_point, std::string& out);

}  // namespace hisparse::text
