// Source of a chat template -> tokens, with Jinja's whitespace rules applied.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hisparse::text::jinja {

enum class TokenKind {
  kText,        // literal output
  kOutputOpen,  // {{
  kOutputClose,
  kBlockOpen,  // {%
  kBlockClose,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  // its spelling is Token::text
  kEnd,
};

struct Token {
  TokenKind kind;
  int line;          // from 1
  std::string text;  // of strings: with escapes resolved
  std::int64_t integer = 0;
  double real = 0;
};

// The environment is trim_blocks, lstrip_blocks, keep_trailing_newline off. The last token is kEnd.
// Errors are InvalidArgument, or Unimplemented for syntax that Jinja has and we do not; both name
// the line.
absl::StatusOr<std::vector<Token>> lex(std::string_view source);

// "line 3: what".
absl::Status invalid_at(int line, std::string_view what);
absl::Status unsupported_at(int line, std::string_view what);

}  // namespace hisparse::text::jinja
