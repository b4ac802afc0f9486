#include "text/template_lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/status.h"
#include "text/template_string_literal.h"
#include "text/template_value.h"
#include "text/utf8.h"

namespace hisparse::text::jinja {
namespace {

// Longest first. "**" and ";" are Jinja's too; the parser refuses them by name.
constexpr std::array<std::string_view, 27> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "(", ")",
    "[",  "]",  "{",  "}",  "<",  ">",  "=", ".", ":", "|", ",", ";", "!"};

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

// Line ends become "\n" and one at the end of the source goes, as Jinja does before anything else.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::size_t skip_spaces(std::string_view text, std::size_t position) {
  while (position < text.size()) {
    std::size_t next = position;
    if (!is_python_space(next_code_point(text, next))) break;
    position = next;
  }
  return position;
}

std::string_view strip_right(std::string_view text) {
  std::size_t end = 0;
  std::size_t position = 0;
  while (position < text.size()) {
    if (!is_python_space(next_code_point(text, position))) end = position;
  }
  return text.substr(0, end);
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  absl::StatusOr<std::vector<Token>> run() {
    while (position_ < source_.size()) {
      const std::size_t tag = find_tag();
      emit_text(tag);
      if (tag == source_.size()) break;
      HS_RETURN_IF_ERROR(lex_tag());
    }
    emit(TokenKind::kEnd, "end of template");
    return std::move(tokens_);
  }

 private:
  std::size_t find_tag() const {
    std::size_t at = position_;
    while ((at = source_.find('{', at)) != std::string_view::npos) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
      ++at;
    }
    return source_.size();
  }

  // The text up to the tag at `tag`, shortened by that tag's whitespace rules.
  void emit_text(std::size_t tag) {
    const std::string_view whole = source_.substr(position_, tag - position_);
    std::string_view text = whole;
    const char kind = tag + 1 < source_.size() ? source_[tag + 1] : '\0';
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (tag < source_.size() && sign == '-') {
      text = strip_right(text);
    } else if (tag < source_.size() && sign != '+' && kind != '{') {
      text = strip_indent(text);
    }
    if (!text.empty()) emit(TokenKind::kText, std::string(text));
    advance(whole.size());
  }

  // lstrip_blocks: what stands between the start of the line and the tag, if it is only whitespace.
  std::string_view strip_indent(std::string_view text) const {
    const std::size_t newline = text.rfind('\n');
    const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_start == 0 && !at_line_start_) return text;
    const bool blank = skip_spaces(text, line_start) == text.size();
    return blank ? text.substr(0, line_start) : text;
  }

  absl::Status lex_tag() {
    const char kind = source_[position_ + 1];
    const int opened = line_;
    advance(2);
    if (position_ < source_.size() && (source_[position_] == '-' || source_[position_] == '+')) {
      advance(1);
    }
    if (kind == '#') return skip_comment(opened);
    const bool output = kind == '{';
    emit(output ? TokenKind::kOutputOpen : TokenKind::kBlockOpen, output ? "{{" : "{%");
    brackets_ = 0;
    while (true) {
      advance(skip_spaces(source_, position_) - position_);
      if (position_ == source_.size()) return invalid_at(opened, "tag is not closed");
      if (brackets_ == 0 && close_tag(output)) return absl::OkStatus();
      HS_RETURN_IF_ERROR(lex_expression_token());
    }
  }

  absl::Status skip_comment(int opened) {
    const std::size_t end = source_.find("#}", position_);
    if (end == std::string_view::npos) return invalid_at(opened, "comment is not closed");
    const char sign = end > position_ ? source_[end - 1] : '\0';
    advance(end + 2 - position_);
    trim_after_tag(sign);
    return absl::OkStatus();
  }

  // Consumes a closing delimiter of the tag, if one stands here.
  bool close_tag(bool output) {
    const std::string_view rest = source_.substr(position_);
    const std::string_view delimiter = output ? "}}" : "%}";
    char sign = '\0';
    if (rest.front() == '-' || (!output && rest.front() == '+')) sign = rest.front();
    if (rest.substr(sign == '\0' ? 0 : 1, delimiter.size()) != delimiter) return false;
    emit(output ? TokenKind::kOutputClose : TokenKind::kBlockClose, std::string(delimiter));
    advance(delimiter.size() + (sign == '\0' ? 0 : 1));
    if (!output || sign == '-') {
      trim_after_tag(sign);
    } else {
      at_line_start_ = false;
    }
    return true;
  }

  // "-" eats all whitespace; trim_blocks eats one line end unless "+" forbids it.
  void trim_after_tag(char sign) {
    const std::size_t before = position_;
    if (sign == '-') {
      advance(skip_spaces(source_, position_) - position_);
    } else if (sign != '+' && position_ < source_.size() && source_[position_] == '\n') {
      advance(1);
    }
    at_line_start_ = position_ > before && source_[position_ - 1] == '\n';
  }

  absl::Status lex_expression_token() {
    const char c = source_[position_];
    if (c == '\'' || c == '"') return lex_string();
    if (is_digit(c)) return lex_number();
    if (is_name_start(c)) {
      const std::size_t begin = position_;
      while (position_ < source_.size() && is_name_part(source_[position_])) advance(1);
      emit(TokenKind::kName, std::string(source_.substr(begin, position_ - begin)));
      return absl::OkStatus();
    }
    const std::string_view rest = source_.substr(position_);
    for (const std::string_view candidate : kOperators) {
      if (!rest.starts_with(candidate)) continue;
      if (c == '(' || c == '[' || c == '{') ++brackets_;
      if ((c == ')' || c == ']' || c == '}') && --brackets_ < 0) {
        return invalid_at(line_, "unexpected '" + std::string(candidate) + "'");
      }
      emit(TokenKind::kOperator, std::string(candidate));
      advance(candidate.size());
      return absl::OkStatus();
    }
    std::size_t end = position_;
    next_code_point(source_, end);
    return invalid_at(line_, "unexpected character '" +
                                 std::string(source_.substr(position_, end - position_)) + "'");
  }

  absl::Status lex_string() {
    const char quote = source_[position_];
    std::size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return invalid_at(line_, "string is not closed");
    const std::string_view body = source_.substr(position_ + 1, end - position_ - 1);
    absl::StatusOr<std::string> text = resolve_escapes(body);
    if (!text.ok()) return invalid_at(line_, std::string(text.status().message()));
    emit(TokenKind::kString, std::move(*text));
    advance(end + 1 - position_);
    return absl::OkStatus();
  }

  // Decimal integers and floats; "1_000", "0x1F" and their kind are refused.
  absl::Status lex_number() {
    std::size_t end = position_;
    const auto skip_digits = [&] {
      while (end < source_.size() && is_digit(source_[end])) ++end;
    };
    const auto digit_at = [&](std::size_t at) {
      return at < source_.size() && is_digit(source_[at]);
    };
    skip_digits();
    bool real = false;
    if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      real = true;
      ++end;
      skip_digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const bool sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
      if (digit_at(end + (sign ? 2 : 1))) {
        real = true;
        end += sign ? 2 : 1;
        skip_digits();
      }
    }
    return emit_number(source_.substr(position_, end - position_), real);
  }

  absl::Status emit_number(std::string_view spelling, bool real) {
    const std::size_t after = position_ + spelling.size();
    const bool leading_zero = !real && spelling.size() > 1 && spelling.front() == '0';
    if (leading_zero || (after < source_.size() && is_name_part(source_[after]))) {
      return unsupported_at(line_, "number beginning with '" + std::string(spelling) + "'");
    }
    Token token{real ? TokenKind::kFloat : TokenKind::kInteger, line_, std::string(spelling)};
    const char* begin = spelling.data();
    const char* end = begin + spelling.size();
    const auto result =
        real ? std::from_chars(begin, end, token.real) : std::from_chars(begin, end, token.integer);
    if (result.ec != std::errc() || result.ptr != end) {
      return unsupported_at(line_, "number '" + std::string(spelling) + "' out of range");
    }
    tokens_.push_back(std::move(token));
    advance(spelling.size());
    return absl::OkStatus();
  }

  void emit(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }

  void advance(std::size_t bytes) {
    const std::string_view passed = source_.substr(position_, bytes);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    position_ += bytes;
  }

  const std::string_view source_;
  std::size_t position_ = 0;
  int line_ = 1;
  int brackets_ = 0;           // open ones in this tag: "}}" may close a dict
  bool at_line_start_ = true;  // the last tag took a line end with it
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> lex(std::string_view source) {
  const std::string normalized = normalize_newlines(source);
  return Lexer(normalized).run();
}

absl::Status invalid_at(int line, std::string_view what) {
  return absl::InvalidArgumentError("chat template, line " + std::to_string(line) + ": " +
                                    std::string(what));
}

absl::Status unsupported_at(int line, std::string_view what) {
  return absl::UnimplementedError("chat template, line " + std::to_string(line) + ": " +
                                  std::string(what) + " is not supported");
}

}  // namespace hisparse::text::jinja
