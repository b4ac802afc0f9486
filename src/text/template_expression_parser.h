// Tokens -> one expression: precedence climbing in Jinja's order.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "text/template_ast.h"
#include "text/template_token_stream.h"

namespace hisparse::text::jinja {

// Nesting of expressions and statements, and the height of an expression tree.
inline constexpr int kMaxNesting = 100;

// Works on a stream that it does not own. Refuses what is nested deeper than kMaxNesting, so that
// neither it nor a walk over its result can exhaust the stack.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  absl::StatusOr<ExpressionPtr> parse();
  // An expression that is not itself an `a if b else c`, as `if` and `for` take it.
  absl::StatusOr<ExpressionPtr> parse_condition();

 private:
  using Result = absl::StatusOr<ExpressionPtr>;
  struct CallArguments {
    std::vector<ExpressionPtr> positional;
    std::vector<std::pair<std::string, ExpressionPtr>> keywords;
  };

  Result parse_conditional();
  Result parse_binary(int level);
  Result parse_not();
  Result parse_comparison();
  Result parse_unary();
  Result parse_operand();
  Result parse_primary();
  Result parse_name();
  Result parse_list();
  Result parse_dict();
  Result parse_postfix(ExpressionPtr expression);
  Result parse_dot(ExpressionPtr object);
  Result parse_subscript(ExpressionPtr object);
  Result parse_filters(ExpressionPtr expression);
  Result parse_filter(ExpressionPtr input);
  Result parse_test(ExpressionPtr operand);
  Result parse_function(const Token& name);
  absl::StatusOr<CallArguments> parse_arguments();
  absl::StatusOr<std::vector<ExpressionPtr>> bind(const CallSpec& callee, int line,
                                                  CallArguments arguments);
  std::optional<CompareOperator> next_comparison();

  Result make(int line, ExpressionNode node);

  TokenStream& tokens_;
  int depth_ = 0;
};

}  // namespace hisparse::text::jinja
