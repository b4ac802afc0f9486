// Walks a parsed template and writes its output.
#pragma once

#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "text/template_ast.h"
#include "text/template_budget.h"
#include "text/template_value.h"

namespace hisparse::text::jinja {

// One rendering, on one thread. Borrows the template, which must outlive it.
class Interpreter {
 public:
  using Scope = std::map<std::string_view, Value>;  // names live in the template or are literals

  explicit Interpreter(Scope globals) { scopes_.push_back(std::move(globals)); }

  // Errors name the line, except the message of raise_exception(), which is passed on as it is.
  absl::Status run(const Body& body);
  MarkedString take_output() { return std::move(output_); }

 private:
  using Result = absl::StatusOr<Value>;

  absl::Status execute(const Text& statement, int line);
  absl::Status execute(const Output& statement, int line);
  absl::Status execute(const If& statement, int line);
  absl::Status execute(const For& statement, int line);
  absl::Status execute(const Set& statement, int line);
  absl::Status bind_targets(const For& statement, const Value& item, int line);
  absl::Status write(const MarkedString& text);

  Result evaluate(const Expression& expression);
  Result evaluate(const Literal& node, int line);
  Result evaluate(const Name& node, int line);
  Result evaluate(const Attribute& node, int line);
  Result evaluate(const Index& node, int line);
  Result evaluate(const Slice& node, int line);
  Result evaluate(const Unary& node, int line);
  Result evaluate(const Binary& node, int line);
  Result evaluate(const Comparison& node, int line);
  Result evaluate(const Conditional& node, int line);
  Result evaluate(const ListLiteral& node, int line);
  Result evaluate(const DictLiteral& node, int line);
  Result evaluate(const Call& node, int line);
  Result evaluate(const TestCall& node, int line);
  Result evaluate(const RaiseException& node, int line);
  Result evaluate(const MakeNamespace& node, int line);
  Result evaluate_or(const ExpressionPtr& expression, Value fallback);

  const Value* find(std::string_view name) const;

  std::vector<Scope> scopes_;  // the template's own, then one per loop iteration that runs
  Budget budget_;
  MarkedString output_;
};

}  // namespace hisparse::text::jinja
