// Cuts text into the pieces inside which BPE merges: hand-written scanners for the patterns of
// reference/models.md section 4.1. Unicode classes are those of the linked utf8proc (2.8: Unicode
// 15).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace hisparse::text {

enum class PretokenizerKind {
  kGpt2,        // the GPT-2 pattern
  kDigitsGpt2,  // each \p{N} alone, then the GPT-2 pattern inside what lies between
};

// The kind that a tokenizer.ggml.pre names, if it is implemented.
std::optional<PretokenizerKind> pretokenizer_from_name(std::string_view pre);
// "smollm, gpt-2", for error messages.
std::string supported_pretokenizers();

// The piece that begins at `position` (less than text.size()) of valid UTF-8. `position` must be a
// border of pieces: 0, or the end of the piece before.
std::string_view next_piece(PretokenizerKind kind, std::string_view text, std::size_t position);

// The White_Space property (it does not hold U+180E).
bool is_white_space(char32_t code_point);

}  // namespace hisparse::text
