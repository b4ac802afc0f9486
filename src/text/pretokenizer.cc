#include "text/pretokenizer.h"

#include <utf8proc.h>

#include <array>

#include "text/utf8.h"

namespace hisparse::text {
namespace {

struct NamedKind {
  std::string_view name;
  PretokenizerKind kind;
};

constexpr std::array kNamedKinds = {NamedKind{"smollm", PretokenizerKind::kDigitsGpt2},
                                    NamedKind{"gpt-2", PretokenizerKind::kGpt2}};

constexpr std::array<std::string_view, 7> kContractions = {"'s", "'t",  "'re", "'ve",
                                                           "'m", "'ll", "'d"};

enum class CharacterClass { kSpace, kLetter, kNumber, kOther };

CharacterClass classify(char32_t code_point) {
  if (is_white_space(code_point)) return CharacterClass::kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharacterClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharacterClass::kNumber;
    default:
      return CharacterClass::kOther;
  }
}

// Walks over one piece. In the digits kind a number is a border like the end of the text.
class Scanner {
 public:
  Scanner(PretokenizerKind kind, std::string_view text, std::size_t position)
      : digits_alone_(kind == PretokenizerKind::kDigitsGpt2), text_(text), begin_(position) {}

  std::string_view piece() const {
    const std::string_view rest = text_.substr(begin_);
    for (const std::string_view contraction : kContractions) {
      if (rest.starts_with(contraction)) return rest.substr(0, contraction.size());
    }
    std::size_t end = begin_;
    const CharacterClass first = read(end);
    if (first == CharacterClass::kNumber && digits_alone_) return cut(end);
    if (first != CharacterClass::kSpace) return cut(run_end(end, first));
    if (rest.front() == ' ' && !at_border(end)) {
      const CharacterClass second = read(end);
      if (second != CharacterClass::kSpace) return cut(run_end(end, second));
    }
    return spaces();
  }

 private:
  std::string_view cut(std::size_t end) const { return text_.substr(begin_, end - begin_); }

  CharacterClass read(std::size_t& position) const {
    return classify(next_code_point(text_, position));
  }

  bool at_border(std::size_t position) const {
    return position == text_.size() || (digits_alone_ && read(position) == CharacterClass::kNumber);
  }

  std::size_t run_end(std::size_t position, CharacterClass wanted) const {
    while (position < text_.size()) {
      std::size_t next = position;
      if (read(next) != wanted) break;
      position = next;
    }
    return position;
  }

  // \s+(?!\S)|\s+ : a run leaves its last character to the next piece unless a border follows.
  std::string_view spaces() const {
    std::size_t last = begin_;
    std::size_t end = begin_;
    while (end < text_.size()) {
      std::size_t next = end;
      if (read(next) != CharacterClass::kSpace) break;
      last = end;
      end = next;
    }
    return cut(at_border(end) || last == begin_ ? end : last);
  }

  const bool digits_alone_;
  const std::string_view text_;
  const std::size_t begin_;
};

}  // namespace

std::optional<PretokenizerKind> pretokenizer_from_name(std::string_view pre) {
  for (const NamedKind& named : kNamedKinds) {
    if (named.name == pre) return named.kind;
  }
  return std::nullopt;
}

std::string supported_pretokenizers() {
  std::string names;
  for (const NamedKind& named : kNamedKinds) {
    if (!names.empty()) names += ", ";
    names += named.name;
  }
  return names;
}

std::string_view next_piece(PretokenizerKind kind, std::string_view text, std::size_t position) {
  return Scanner(kind, text, position).piece();
}

bool is_white_space(char32_t code_point) {
  if (code_point < 0x80) return code_point == ' ' || (code_point >= 0x09 && code_point <= 0x0D);
  switch (code_point) {
    case 0x0085:
    case 0x00A0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x3000:
      return true;
    default:
      return code_point >= 0x2000 && code_point <= 0x200A;
  }
}

}  // namespace hisparse::text
