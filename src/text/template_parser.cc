#include "text/template_parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include "base/status.h"
#include "text/template_expression_parser.h"
#include "text/template_token_stream.h"

namespace hisparse::text::jinja {
namespace {

constexpr std::array<std::string_view, 12> kNotAssignable = {
    "true", "True", "false", "False", "none", "None", "and", "or", "not", "in", "is", "loop"};

// Tags that end or divide a body; outside one they are misplaced, not unsupported.
constexpr std::array<std::string_view, 5> kDividers = {"elif", "else", "endif", "endfor", "endset"};

bool contains(auto& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(tokens_) {}

  absl::StatusOr<Body> run() {
    HS_ASSIGN_OR_RETURN(Body body, parse_body({}));
    if (!tokens_.at(TokenKind::kEnd)) return tokens_.expected("end of template");
    return body;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  // Up to the end of the template, or up to a `{% name` of `ends`, which stays.
  absl::StatusOr<Body> parse_body(Names ends) {
    if (depth_ >= kMaxNesting) {
      return invalid_at(tokens_.line(),
                        "statements are nested more than " + std::to_string(kMaxNesting) + " deep");
    }
    ++depth_;
    Body body;
    while (!tokens_.at(TokenKind::kEnd) && !at_tag(ends)) {
      HS_ASSIGN_OR_RETURN(Statement statement, parse_statement());
      body.push_back(std::move(statement));
    }
    --depth_;
    return body;
  }

  bool at_tag(Names names) const {
    return tokens_.at(TokenKind::kBlockOpen) && tokens_.peek(1).kind == TokenKind::kName &&
           contains(names, tokens_.peek(1).text);
  }

  absl::StatusOr<Statement> parse_statement() {
    const Token token = tokens_.next();
    if (token.kind == TokenKind::kText) {
      return Statement{token.line, Text{MarkedString::from_template(token.text)}};
    }
    if (token.kind == TokenKind::kOutputOpen) {
      HS_ASSIGN_OR_RETURN(ExpressionPtr expression, expressions_.parse());
      HS_RETURN_IF_ERROR(tokens_.expect(TokenKind::kOutputClose, "'}}'"));
      return Statement{token.line, Output{std::move(expression)}};
    }
    if (!tokens_.at(TokenKind::kName)) return tokens_.expected("the name of a statement");
    const std::string name = tokens_.next().text;
    if (name == "if") return parse_if(token.line);
    if (name == "for") return parse_for(token.line);
    if (name == "set") return parse_set(token.line);
    if (contains(kDividers, name)) return invalid_at(token.line, "misplaced '" + name + "'");
    return unsupported_at(token.line, "statement '" + name + "'");
  }

  absl::Status close_block() { return tokens_.expect(TokenKind::kBlockClose, "'%}'"); }

  // `{% name %}`, which ends the statement that began on `line`.
  absl::Status expect_end(std::string_view name, int line) {
    if (!at_tag({name})) {
      return invalid_at(line, "no '" + std::string(name) + "' for this statement");
    }
    tokens_.next();
    tokens_.next();
    return close_block();
  }

  absl::StatusOr<Body> parse_else(std::string_view end) {
    if (!at_tag({"else"})) return Body();
    tokens_.next();
    tokens_.next();
    HS_RETURN_IF_ERROR(close_block());
    return parse_body({end});
  }

  absl::StatusOr<Statement> parse_if(int line) {
    If result;
    do {
      if (!result.branches.empty()) {
        tokens_.next();
        tokens_.next();
      }
      HS_ASSIGN_OR_RETURN(ExpressionPtr condition, expressions_.parse_condition());
      HS_RETURN_IF_ERROR(close_block());
      HS_ASSIGN_OR_RETURN(Body body, parse_body({"elif", "else", "endif"}));
      result.branches.emplace_back(std::move(condition), std::move(body));
    } while (at_tag({"elif"}));
    HS_ASSIGN_OR_RETURN(result.otherwise, parse_else("endif"));
    HS_RETURN_IF_ERROR(expect_end("endif", line));
    return Statement{line, std::move(result)};
  }

  absl::StatusOr<Statement> parse_for(int line) {
    For result;
    do {
      HS_ASSIGN_OR_RETURN(std::string target, parse_target());
      result.targets.push_back(std::move(target));
    } while (tokens_.skip_operator(","));
    if (!tokens_.skip_name("in")) return tokens_.expected("'in'");
    HS_ASSIGN_OR_RETURN(result.iterable, expressions_.parse_condition());
    if (tokens_.at_name("if")) return unsupported_at(line, "'for' with 'if'");
    if (tokens_.at_name("recursive")) return unsupported_at(line, "'for' with 'recursive'");
    if (tokens_.at_operator(",")) return unsupported_at(line, "a tuple");
    HS_RETURN_IF_ERROR(close_block());
    HS_ASSIGN_OR_RETURN(result.body, parse_body({"else", "endfor"}));
    HS_ASSIGN_OR_RETURN(result.otherwise, parse_else("endfor"));
    HS_RETURN_IF_ERROR(expect_end("endfor", line));
    return Statement{line, std::move(result)};
  }

  absl::StatusOr<Statement> parse_set(int line) {
    Set result;
    HS_ASSIGN_OR_RETURN(result.name, parse_target());
    if (tokens_.skip_operator(".")) {
      if (!tokens_.at(TokenKind::kName)) return tokens_.expected("a name");
      result.attribute = tokens_.next().text;
    }
    if (tokens_.at_operator(",")) return unsupported_at(line, "'set' with several targets");
    if (tokens_.at(TokenKind::kBlockClose) || tokens_.at_operator("|")) {
      return unsupported_at(line, "'set' as a block");
    }
    HS_RETURN_IF_ERROR(tokens_.expect_operator("="));
    HS_ASSIGN_OR_RETURN(result.value, expressions_.parse());
    if (tokens_.at_operator(",")) return unsupported_at(line, "a tuple");
    HS_RETURN_IF_ERROR(close_block());
    return Statement{line, std::move(result)};
  }

  absl::StatusOr<std::string> parse_target() {
    if (tokens_.at_operator("(")) return unsupported_at(tokens_.line(), "a target in parentheses");
    if (!tokens_.at(TokenKind::kName)) return tokens_.expected("a name");
    const Token name = tokens_.next();
    if (contains(kNotAssignable, name.text)) {
      return invalid_at(name.line, "cannot assign to '" + name.text + "'");
    }
    return name.text;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
};

}  // namespace

absl::StatusOr<Body> parse_template(std::string_view source) {
  HS_ASSIGN_OR_RETURN(std::vector<Token> tokens, lex(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace hisparse::text::jinja
