#include "text/template_expression_parser.h"

#include <algorithm>
#include <array>

#include "base/status.h"

namespace hisparse::text::jinja {
namespace {

struct BinaryLevelEntry {
  std::string_view spelling;
  BinaryOperator operation;
  int level;
};

// Loosest first; between kNotLevel's neighbours stand `not` and the comparisons.
constexpr int kOrLevel = 0;
constexpr int kAndLevel = 1;
constexpr int kNotLevel = 2;
constexpr int kArithmeticLevel = 3;
constexpr int kUnaryLevel = 6;

constexpr std::array kBinaryOperators = {
    BinaryLevelEntry{"or", BinaryOperator::kOr, kOrLevel},
    BinaryLevelEntry{"and", BinaryOperator::kAnd, kAndLevel},
    BinaryLevelEntry{"+", BinaryOperator::kAdd, kArithmeticLevel},
    BinaryLevelEntry{"-", BinaryOperator::kSubtract, kArithmeticLevel},
    BinaryLevelEntry{"~", BinaryOperator::kConcat, kArithmeticLevel + 1},
    BinaryLevelEntry{"*", BinaryOperator::kMultiply, kArithmeticLevel + 2},
    BinaryLevelEntry{"/", BinaryOperator::kDivide, kArithmeticLevel + 2},
    BinaryLevelEntry{"//", BinaryOperator::kFloorDivide, kArithmeticLevel + 2},
    BinaryLevelEntry{"%", BinaryOperator::kModulo, kArithmeticLevel + 2}};

const BinaryLevelEntry* binary_at(const Token& token, int level) {
  if (token.kind != TokenKind::kOperator && token.kind != TokenKind::kName) return nullptr;
  const auto found = std::find_if(
      kBinaryOperators.begin(), kBinaryOperators.end(),
      [&](const auto& entry) { return entry.level == level && entry.spelling == token.text; });
  return found == kBinaryOperators.end() ? nullptr : &*found;
}

// Dicts are searched linearly.
constexpr std::size_t kMaxDictEntries = 256;

constexpr std::array<std::string_view, 8> kReserved = {"and", "or",   "not", "in",
                                                       "is",  "else", "if",  "elif"};

constexpr std::array<std::string_view, 7> kLoopAttributes = {
    "first", "last", "index", "index0", "length", "revindex", "revindex0"};

absl::Status too_deep(int line) {
  return invalid_at(line, "nested more than " + std::to_string(kMaxNesting) + " deep");
}

}  // namespace

ExpressionParser::Result ExpressionParser::make(int line, ExpressionNode node) {
  const int tallest = tallest_part(node);
  if (tallest >= kMaxNesting) return too_deep(line);
  return std::make_unique<const Expression>(Expression{line, tallest + 1, std::move(node)});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::parse() { return parse_conditional(); }

absl::StatusOr<ExpressionPtr> ExpressionParser::parse_condition() { return parse_binary(kOrLevel); }

// Every way to nest goes through here or through parse_not() and parse_unary(), which count too.
ExpressionParser::Result ExpressionParser::parse_conditional() {
  if (depth_ >= kMaxNesting) return too_deep(tokens_.line());
  ++depth_;
  Result result = parse_binary(kOrLevel);
  while (result.ok() && tokens_.at_name("if")) {
    const int line = tokens_.next().line;
    Result condition = parse_binary(kOrLevel);
    if (!condition.ok()) return condition;
    ExpressionPtr otherwise;
    if (tokens_.skip_name("else")) {
      HS_ASSIGN_OR_RETURN(otherwise, parse_conditional());
    }
    result =
        make(line, Conditional{std::move(*condition), std::move(*result), std::move(otherwise)});
  }
  --depth_;
  return result;
}

ExpressionParser::Result ExpressionParser::parse_binary(int level) {
  if (level == kNotLevel) return parse_not();
  if (level == kUnaryLevel) return parse_unary();
  HS_ASSIGN_OR_RETURN(ExpressionPtr left, parse_binary(level + 1));
  while (const BinaryLevelEntry* entry = binary_at(tokens_.peek(), level)) {
    const int line = tokens_.next().line;
    HS_ASSIGN_OR_RETURN(ExpressionPtr right, parse_binary(level + 1));
    HS_ASSIGN_OR_RETURN(left,
                        make(line, Binary{entry->operation, std::move(left), std::move(right)}));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::parse_not() {
  if (!tokens_.at_name("not")) return parse_comparison();
  int count = 0;
  const int line = tokens_.line();
  while (tokens_.skip_name("not")) {
    if (++count > kMaxNesting) return too_deep(line);
  }
  HS_ASSIGN_OR_RETURN(ExpressionPtr operand, parse_comparison());
  for (; count > 0; --count) {
    HS_ASSIGN_OR_RETURN(operand, make(line, Unary{UnaryOperator::kNot, std::move(operand)}));
  }
  return operand;
}

std::optional<CompareOperator> ExpressionParser::next_comparison() {
  struct Entry {
    std::string_view spelling;
    CompareOperator operation;
  };
  static constexpr Entry kEntries[] = {
      {"==", CompareOperator::kEqual},  {"!=", CompareOperator::kNotEqual},
      {"<", CompareOperator::kLess},    {"<=", CompareOperator::kLessEqual},
      {">", CompareOperator::kGreater}, {">=", CompareOperator::kGreaterEqual}};
  for (const Entry& entry : kEntries) {
    if (tokens_.skip_operator(entry.spelling)) return entry.operation;
  }
  if (tokens_.skip_name("in")) return CompareOperator::kIn;
  if (tokens_.at_name("not") && tokens_.at_name("in", 1)) {
    tokens_.next();
    tokens_.next();
    return CompareOperator::kNotIn;
  }
  return std::nullopt;
}

ExpressionParser::Result ExpressionParser::parse_comparison() {
  HS_ASSIGN_OR_RETURN(ExpressionPtr first, parse_binary(kArithmeticLevel));
  const int line = tokens_.line();
  Comparison comparison;
  while (const std::optional<CompareOperator> operation = next_comparison()) {
    HS_ASSIGN_OR_RETURN(ExpressionPtr operand, parse_binary(kArithmeticLevel));
    comparison.rest.emplace_back(*operation, std::move(operand));
  }
  if (comparison.rest.empty()) return first;
  comparison.first = std::move(first);
  return make(line, std::move(comparison));
}

// Signs bind tighter than filters and looser than `.` and `[`: `-x|f` is `(-x)|f`.
ExpressionParser::Result ExpressionParser::parse_unary() {
  std::vector<UnaryOperator> signs;
  const int line = tokens_.line();
  while (tokens_.at_operator("-") || tokens_.at_operator("+")) {
    const bool minus = tokens_.next().text == "-";
    signs.push_back(minus ? UnaryOperator::kMinus : UnaryOperator::kPlus);
    if (signs.size() > static_cast<std::size_t>(kMaxNesting)) return too_deep(line);
  }
  HS_ASSIGN_OR_RETURN(ExpressionPtr operand, parse_operand());
  for (; !signs.empty(); signs.pop_back()) {
    HS_ASSIGN_OR_RETURN(operand, make(line, Unary{signs.back(), std::move(operand)}));
  }
  HS_ASSIGN_OR_RETURN(operand, parse_filters(std::move(operand)));
  if (tokens_.at_operator("**")) return unsupported_at(tokens_.line(), "operator '**'");
  return operand;
}

ExpressionParser::Result ExpressionParser::parse_operand() {
  HS_ASSIGN_OR_RETURN(ExpressionPtr operand, parse_primary());
  return parse_postfix(std::move(operand));
}

ExpressionParser::Result ExpressionParser::parse_primary() {
  const int line = tokens_.line();
  if (tokens_.at(TokenKind::kName)) return parse_name();
  if (tokens_.at(TokenKind::kString)) {
    MarkedString text;
    while (tokens_.at(TokenKind::kString)) text.append(tokens_.next().text);
    return make(line, Literal{Value(std::move(text))});
  }
  if (tokens_.at(TokenKind::kInteger)) return make(line, Literal{Value(tokens_.next().integer)});
  if (tokens_.at(TokenKind::kFloat)) return make(line, Literal{Value(tokens_.next().real)});
  if (tokens_.skip_operator("(")) {
    if (tokens_.at_operator(")")) return unsupported_at(line, "a tuple");
    HS_ASSIGN_OR_RETURN(ExpressionPtr inner, parse_conditional());
    if (tokens_.at_operator(",")) return unsupported_at(line, "a tuple");
    HS_RETURN_IF_ERROR(tokens_.expect_operator(")"));
    return inner;
  }
  if (tokens_.at_operator("[")) return parse_list();
  if (tokens_.at_operator("{")) return parse_dict();
  return tokens_.expected("an expression");
}

ExpressionParser::Result ExpressionParser::parse_name() {
  const Token name = tokens_.next();
  const std::string_view text = name.text;
  if (text == "true" || text == "True") return make(name.line, Literal{Value(true)});
  if (text == "false" || text == "False") return make(name.line, Literal{Value(false)});
  if (text == "none" || text == "None") return make(name.line, Literal{Value(None{})});
  if (std::find(kReserved.begin(), kReserved.end(), text) != kReserved.end()) {
    return invalid_at(name.line, "expected an expression before '" + name.text + "'");
  }
  if (tokens_.at_operator("(")) return parse_function(name);
  return make(name.line, Name{name.text});
}

ExpressionParser::Result ExpressionParser::parse_list() {
  const int line = tokens_.next().line;
  ListLiteral list;
  while (!tokens_.at_operator("]")) {
    HS_ASSIGN_OR_RETURN(ExpressionPtr element, parse_conditional());
    list.elements.push_back(std::move(element));
    if (!tokens_.skip_operator(",")) break;
  }
  HS_RETURN_IF_ERROR(tokens_.expect_operator("]"));
  return make(line, std::move(list));
}

ExpressionParser::Result ExpressionParser::parse_dict() {
  const int line = tokens_.next().line;
  DictLiteral dict;
  while (!tokens_.at_operator("}")) {
    HS_ASSIGN_OR_RETURN(ExpressionPtr key, parse_conditional());
    HS_RETURN_IF_ERROR(tokens_.expect_operator(":"));
    HS_ASSIGN_OR_RETURN(ExpressionPtr value, parse_conditional());
    dict.entries.emplace_back(std::move(key), std::move(value));
    if (dict.entries.size() > kMaxDictEntries) {
      return unsupported_at(line,
                            "a dict of more than " + std::to_string(kMaxDictEntries) + " entries");
    }
    if (!tokens_.skip_operator(",")) break;
  }
  HS_RETURN_IF_ERROR(tokens_.expect_operator("}"));
  return make(line, std::move(dict));
}

ExpressionParser::Result ExpressionParser::parse_postfix(ExpressionPtr expression) {
  while (true) {
    if (tokens_.at_operator("(")) return unsupported_at(tokens_.line(), "calling an expression");
    if (tokens_.skip_operator(".")) {
      HS_ASSIGN_OR_RETURN(expression, parse_dot(std::move(expression)));
    } else if (tokens_.at_operator("[")) {
      HS_ASSIGN_OR_RETURN(expression, parse_subscript(std::move(expression)));
    } else {
      return expression;
    }
  }
}

ExpressionParser::Result ExpressionParser::parse_dot(ExpressionPtr object) {
  const int line = tokens_.line();
  if (tokens_.at(TokenKind::kInteger)) {
    HS_ASSIGN_OR_RETURN(ExpressionPtr index, make(line, Literal{Value(tokens_.next().integer)}));
    return make(line, Index{std::move(object), std::move(index)});
  }
  if (!tokens_.at(TokenKind::kName)) return tokens_.expected("a name");
  std::string name = tokens_.next().text;
  const CallSpec* method = find_method(name);
  if (!tokens_.at_operator("(")) {
    if (method) return unsupported_at(line, "method '" + name + "' without a call");
    const Name* variable = std::get_if<Name>(&object->node);
    const bool known =
        std::find(kLoopAttributes.begin(), kLoopAttributes.end(), name) != kLoopAttributes.end();
    if (variable && variable->name == "loop" && !known) {
      return unsupported_at(line, "'loop." + name + "'");
    }
    return make(line, Attribute{std::move(object), std::move(name)});
  }
  if (!method) return unsupported_at(line, "method '" + name + "'");
  HS_ASSIGN_OR_RETURN(CallArguments arguments, parse_arguments());
  HS_ASSIGN_OR_RETURN(auto bound, bind(*method, line, std::move(arguments)));
  return make(line, Call{method, std::move(object), std::move(bound)});
}

ExpressionParser::Result ExpressionParser::parse_subscript(ExpressionPtr object) {
  const int line = tokens_.next().line;
  std::array<ExpressionPtr, 3> bounds;  // start, stop, step
  std::size_t colons = 0;
  while (!tokens_.at_operator("]")) {
    if (tokens_.skip_operator(":")) {
      if (++colons >= bounds.size()) return tokens_.expected("']'");
    } else if (bounds[colons]) {
      break;
    } else {
      HS_ASSIGN_OR_RETURN(bounds[colons], parse_conditional());
    }
  }
  if (tokens_.at_operator(",")) return unsupported_at(line, "a tuple");
  HS_RETURN_IF_ERROR(tokens_.expect_operator("]"));
  if (colons > 0) {
    return make(line, Slice{std::move(object), std::move(bounds[0]), std::move(bounds[1]),
                            std::move(bounds[2])});
  }
  if (!bounds[0]) return invalid_at(line, "expected an expression between '[' and ']'");
  return make(line, Index{std::move(object), std::move(bounds[0])});
}

ExpressionParser::Result ExpressionParser::parse_filters(ExpressionPtr expression) {
  while (true) {
    if (tokens_.skip_operator("|")) {
      HS_ASSIGN_OR_RETURN(expression, parse_filter(std::move(expression)));
    } else if (tokens_.skip_name("is")) {
      HS_ASSIGN_OR_RETURN(expression, parse_test(std::move(expression)));
    } else if (tokens_.at_operator("(")) {
      return unsupported_at(tokens_.line(), "calling an expression");
    } else {
      return expression;
    }
  }
}

ExpressionParser::Result ExpressionParser::parse_filter(ExpressionPtr input) {
  const int line = tokens_.line();
  if (!tokens_.at(TokenKind::kName)) return tokens_.expected("the name of a filter");
  const std::string name = tokens_.next().text;
  const CallSpec* filter = find_filter(name);
  if (!filter) return unsupported_at(line, "filter '" + name + "'");
  CallArguments arguments;
  if (tokens_.at_operator("(")) {
    HS_ASSIGN_OR_RETURN(arguments, parse_arguments());
  }
  HS_ASSIGN_OR_RETURN(auto bound, bind(*filter, line, std::move(arguments)));
  return make(line, Call{filter, std::move(input), std::move(bound)});
}

ExpressionParser::Result ExpressionParser::parse_test(ExpressionPtr operand) {
  const int line = tokens_.line();
  const bool negated = tokens_.skip_name("not");
  if (!tokens_.at(TokenKind::kName)) return tokens_.expected("the name of a test");
  const std::string name = tokens_.next().text;
  const TestSpec* test = find_test(name);
  if (!test) return unsupported_at(line, "test '" + name + "'");
  if (tokens_.at_name("is")) return invalid_at(line, "tests cannot be chained with 'is'");
  if (tokens_.at_operator("(")) {
    return invalid_at(line, "test '" + name + "' takes no arguments");
  }
  return make(line, TestCall{test, std::move(operand), negated});
}

ExpressionParser::Result ExpressionParser::parse_function(const Token& name) {
  HS_ASSIGN_OR_RETURN(CallArguments arguments, parse_arguments());
  if (name.text == "raise_exception") {
    if (arguments.positional.size() != 1 || !arguments.keywords.empty()) {
      return invalid_at(name.line, "raise_exception takes one argument");
    }
    return make(name.line, RaiseException{std::move(arguments.positional[0])});
  }
  if (name.text == "namespace") {
    if (!arguments.positional.empty()) {
      return unsupported_at(name.line, "namespace() with a positional argument");
    }
    return make(name.line, MakeNamespace{std::move(arguments.keywords)});
  }
  return unsupported_at(name.line, "function '" + name.text + "'");
}

absl::StatusOr<ExpressionParser::CallArguments> ExpressionParser::parse_arguments() {
  HS_RETURN_IF_ERROR(tokens_.expect_operator("("));
  CallArguments arguments;
  while (!tokens_.at_operator(")")) {
    const int line = tokens_.line();
    if (tokens_.at_operator("*") || tokens_.at_operator("**")) {
      return unsupported_at(line, "argument unpacking");
    }
    std::string keyword;
    if (tokens_.at(TokenKind::kName) && tokens_.at_operator("=", 1)) {
      keyword = tokens_.next().text;
      tokens_.next();
    }
    HS_ASSIGN_OR_RETURN(ExpressionPtr value, parse_conditional());
    if (!keyword.empty()) {
      arguments.keywords.emplace_back(std::move(keyword), std::move(value));
    } else if (arguments.keywords.empty()) {
      arguments.positional.push_back(std::move(value));
    } else {
      return invalid_at(line, "positional argument after a keyword argument");
    }
    if (!tokens_.skip_operator(",")) break;
  }
  HS_RETURN_IF_ERROR(tokens_.expect_operator(")"));
  return arguments;
}

absl::StatusOr<std::vector<ExpressionPtr>> ExpressionParser::bind(const CallSpec& callee, int line,
                                                                  CallArguments arguments) {
  const std::string name = "'" + std::string(callee.name) + "'";
  const std::size_t count = callee.parameter_count();
  if (arguments.positional.size() > count)
    return invalid_at(line, name + " got too many arguments");
  std::vector<ExpressionPtr> bound = std::move(arguments.positional);
  bound.resize(count);
  for (auto& [keyword, value] : arguments.keywords) {
    const auto begin = callee.parameters.begin();
    const auto end = begin + static_cast<std::ptrdiff_t>(count);
    const auto found = std::find(begin, end, keyword);
    if (found == end) return unsupported_at(line, "argument '" + keyword + "' of " + name);
    ExpressionPtr& place = bound[static_cast<std::size_t>(found - begin)];
    if (place) return invalid_at(line, "argument '" + keyword + "' of " + name + " given twice");
    place = std::move(value);
  }
  for (std::size_t i = 0; i < callee.required; ++i) {
    if (!bound[i]) return invalid_at(line, name + " lacks an argument");
  }
  return bound;
}

}  // namespace hisparse::text::jinja
