// A cursor over tokens, shared by the two parsers.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template_lexer.h"

namespace hisparse::text::jinja {

class TokenStream {
 public:
  // `tokens` ends with kEnd, which next() never passes.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(position_ + ahead, tokens_.size() - 1)];
  }
  int line() const { return peek().line; }

  Token next() {
    Token token = peek();
    if (position_ + 1 < tokens_.size()) ++position_;
    return token;
  }

  bool at(TokenKind kind) const { return peek().kind == kind; }
  bool at_operator(std::string_view spelling, std::size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::kOperator && peek(ahead).text == spelling;
  }
  bool at_name(std::string_view name, std::size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::kName && peek(ahead).text == name;
  }

  bool skip_operator(std::string_view spelling) { return at_operator(spelling) && (next(), true); }
  bool skip_name(std::string_view name) { return at_name(name) && (next(), true); }

  absl::Status expect_operator(std::string_view spelling) {
    return skip_operator(spelling) ? absl::OkStatus() : expected("'" + std::string(spelling) + "'");
  }
  absl::Status expect(TokenKind kind, std::string_view what) {
    if (!at(kind)) return expected(what);
    next();
    return absl::OkStatus();
  }

  absl::Status expected(std::string_view what) const {
    return invalid_at(line(), "expected " + std::string(what) + " before '" + peek().text + "'");
  }

 private:
  std::vector<Token> tokens_;
  std::size_t position_ = 0;
};

}  // namespace hisparse::text::jinja
