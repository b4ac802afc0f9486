#include "text/template_strings.h"

#include <utf8proc.h>

#include <algorithm>
#include <set>

#include "base/status.h"
#include "text/template_operators.h"
#include "text/utf8.h"

namespace hisparse::text::jinja {
namespace {

// The set of code points that strip() takes away.
class Strippable {
 public:
  explicit Strippable(std::optional<std::string_view> characters) {
    if (!characters) return;
    std::size_t position = 0;
    std::set<char32_t>& chosen = chosen_.emplace();
    while (position < characters->size()) chosen.insert(next_code_point(*characters, position));
  }

  bool holds(char32_t code_point) const {
    return chosen_ ? chosen_->contains(code_point) : is_python_space(code_point);
  }

 private:
  std::optional<std::set<char32_t>> chosen_;
};

// Moves `end` (above 0) to the start of the code point before it.
std::size_t previous_border(std::string_view text, std::size_t end) {
  constexpr unsigned char kContinuationMask = 0xC0;
  constexpr unsigned char kContinuation = 0x80;
  do {
    --end;
  } while ((static_cast<unsigned char>(text[end]) & kContinuationMask) == kContinuation);
  return end;
}

std::size_t skip_space(std::string_view text, std::size_t position) {
  while (position < text.size()) {
    std::size_t next = position;
    if (!is_python_space(next_code_point(text, next))) break;
    position = next;
  }
  return position;
}

std::size_t skip_word(std::string_view text, std::size_t position) {
  while (position < text.size()) {
    std::size_t next = position;
    if (is_python_space(next_code_point(text, next))) break;
    position = next;
  }
  return position;
}

absl::StatusOr<List> split_at_whitespace(const MarkedString& text, std::int64_t most_splits,
                                         Budget& budget) {
  List parts;
  std::size_t begin = skip_space(text.text(), 0);
  while (begin < text.size()) {
    HS_RETURN_IF_ERROR(budget.charge_steps(1));
    const bool last = most_splits >= 0 && static_cast<std::int64_t>(parts.size()) >= most_splits;
    const std::size_t end = last ? text.size() : skip_word(text.text(), begin);
    HS_ASSIGN_OR_RETURN(Value part, new_string(text.slice(begin, end), budget));
    parts.push_back(std::move(part));
    begin = skip_space(text.text(), end);
  }
  return parts;
}

}  // namespace

MarkedString strip(const MarkedString& text, StripSide side,
                   std::optional<std::string_view> characters) {
  const Strippable strippable(characters);
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (side != StripSide::kRight && begin < end) {
    std::size_t next = begin;
    if (!strippable.holds(next_code_point(text.text(), next))) break;
    begin = next;
  }
  while (side != StripSide::kLeft && begin < end) {
    const std::size_t before = previous_border(text.text(), end);
    std::size_t position = before;
    if (!strippable.holds(next_code_point(text.text(), position))) break;
    end = before;
  }
  return text.slice(begin, end);
}

MarkedString change_case(const MarkedString& text, LetterCase to) {
  std::string changed;
  changed.reserve(text.size());
  std::size_t position = 0;
  while (position < text.size()) {
    const auto code_point = static_cast<utf8proc_int32_t>(next_code_point(text.text(), position));
    const utf8proc_int32_t mapped =
        to == LetterCase::kUpper ? utf8proc_toupper(code_point) : utf8proc_tolower(code_point);
    append_utf8(static_cast<char32_t>(mapped), changed);
  }
  return text.spans().empty() ? MarkedString::from_template(std::move(changed))
                              : MarkedString::from_user(std::move(changed));
}

absl::StatusOr<List> split(const MarkedString& text, std::optional<std::string_view> separator,
                           std::int64_t most_splits, Budget& budget) {
  if (!separator) return split_at_whitespace(text, most_splits, budget);
  HS_RETURN_IF_ERROR(charge_search(text.size(), separator->size(), budget));
  List parts;
  std::size_t begin = 0;
  while (true) {
    HS_RETURN_IF_ERROR(budget.charge_steps(1));
    const bool last = most_splits >= 0 && static_cast<std::int64_t>(parts.size()) >= most_splits;
    const std::size_t found = last ? std::string::npos : text.text().find(*separator, begin);
    const std::size_t end = std::min(found, text.size());
    HS_ASSIGN_OR_RETURN(Value part, new_string(text.slice(begin, end), budget));
    parts.push_back(std::move(part));
    if (found == std::string::npos) return parts;
    begin = found + separator->size();
  }
}

absl::StatusOr<Value> replace(const MarkedString& text, std::string_view old,
                              const MarkedString& replacement, std::int64_t most, Budget& budget) {
  HS_RETURN_IF_ERROR(charge_search(text.size(), old.size(), budget));
  MarkedString result;
  std::size_t begin = 0;
  for (std::int64_t count = 0; most < 0 || count < most; ++count) {
    const std::size_t found = text.text().find(old, begin);
    if (found == std::string::npos) break;
    HS_RETURN_IF_ERROR(budget.charge_steps(1));
    HS_RETURN_IF_ERROR(budget.charge_bytes(replacement.size()));
    result.append(text.slice(begin, found));
    result.append(replacement);
    begin = found + old.size();
  }
  result.append(text.slice(begin, text.size()));
  return new_string(std::move(result), budget);
}

std::int64_t length_of(std::string_view text) {
  std::int64_t count = 0;
  std::size_t position = 0;
  for (; position < text.size(); ++count) next_code_point(text, position);
  return count;
}

}  // namespace hisparse::text::jinja
