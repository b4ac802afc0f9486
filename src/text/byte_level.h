// The reversible byte <-> character table of byte-level BPE vocabularies (reference/models.md
// section 4.1).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace hisparse::text {

inline constexpr int kByteValues = 256;

// The UTF-8 spelling of each byte: printable Latin-1 stands for itself, the other 68 bytes for
// U+0100 + n.
const std::array<std::string, kByteValues>& byte_level_spellings();

// The byte that `code_point` spells, if it is in the table.
std::optional<unsigned char> byte_level_byte(char32_t code_point);

// The bytes that a vocabulary entry (valid UTF-8) stands for. An entry with a character outside the
// table stands for its own UTF-8.
std::string byte_level_decode(std::string_view token);

}  // namespace hisparse::text
