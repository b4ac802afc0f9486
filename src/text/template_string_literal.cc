#include "text/template_string_literal.h"

#include <optional>

#include "base/status.h"
#include "text/utf8.h"

namespace hisparse::text::jinja {
namespace {

constexpr char32_t kMaxCodePoint = 0x10FFFF;

struct SimpleEscape {
  char name;
  char value;
};
constexpr SimpleEscape kSimpleEscapes[] = {{'n', '\n'},  {'t', '\t'}, {'r', '\r'}, {'\\', '\\'},
                                           {'\'', '\''}, {'"', '"'},  {'a', '\a'}, {'b', '\b'},
                                           {'f', '\f'},  {'v', '\v'}};

std::optional<char> simple_escape(char name) {
  for (const SimpleEscape& escape : kSimpleEscapes) {
    if (escape.name == name) return escape.value;
  }
  return std::nullopt;
}

std::size_t hex_digits(char name) {
  if (name == 'x') return 2;
  if (name == 'u') return 4;
  return name == 'U' ? 8 : 0;
}

std::optional<char32_t> hex_value(char c) {
  if (c >= '0' && c <= '9') return static_cast<char32_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<char32_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<char32_t>(c - 'A' + 10);
  return std::nullopt;
}

absl::StatusOr<char32_t> read_hex(std::string_view digits, std::size_t count) {
  char32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::optional<char32_t> digit =
        i < digits.size() ? hex_value(digits[i]) : std::optional<char32_t>();
    if (!digit) return absl::InvalidArgumentError("cut-off escape in a string");
    value = value * 16 + *digit;
  }
  if (value > kMaxCodePoint || (value >= 0xD800 && value <= 0xDFFF)) {
    return absl::InvalidArgumentError("escape in a string is not a Unicode scalar value");
  }
  return value;
}

// Up to three octal digits at the front of `digits`.
char32_t read_octal(std::string_view digits, std::size_t& used) {
  constexpr std::size_t kMaxDigits = 3;
  char32_t value = 0;
  for (used = 0; used < kMaxDigits && used < digits.size(); ++used) {
    if (digits[used] < '0' || digits[used] > '7') break;
    value = value * 8 + static_cast<char32_t>(digits[used] - '0');
  }
  return value;
}

}  // namespace

absl::StatusOr<std::string> resolve_escapes(std::string_view body) {
  std::string out;
  std::size_t i = 0;
  while (i < body.size()) {
    if (body[i] != '\\' || i + 1 == body.size()) {
      out.push_back(body[i++]);
      continue;
    }
    const char name = body[i + 1];
    i += 2;
    if (const std::optional<char> value = simple_escape(name)) {
      out.push_back(*value);
    } else if (const std::size_t count = hex_digits(name); count > 0) {
      HS_ASSIGN_OR_RETURN(const char32_t code_point, read_hex(body.substr(i), count));
      append_utf8(code_point, out);
      i += count;
    } else if (name >= '0' && name <= '7') {
      std::size_t used = 0;
      append_utf8(read_octal(body.substr(i - 1), used), out);
      i += used - 1;
    } else if (name == 'N') {
      return absl::InvalidArgumentError("escape \\N in a string is not supported");
    } else if (name != '\n') {  // a backslash before a line end joins the lines
      out.push_back('\\');
      out.push_back(name);
    }
  }
  return out;
}

}  // namespace hisparse::text::jinja
