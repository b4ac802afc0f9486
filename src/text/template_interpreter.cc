#include "text/template_interpreter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/status.h"
#include "text/template_access.h"
#include "text/template_lexer.h"
#include "text/template_operators.h"

namespace hisparse::text::jinja {
namespace {

absl::Status at_line(int line, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), "chat template, line " + std::to_string(line) + ": " +
                                         std::string(status.message()));
}

template <typename T>
absl::StatusOr<T> at_line(int line, absl::StatusOr<T> result) {
  if (!result.ok()) return at_line(line, result.status());
  return result;
}

absl::Status check_storable(const Value& value) {
  if (!value.as_namespace() && !value.as_loop()) return absl::OkStatus();
  return absl::InvalidArgumentError("a " + std::string(value.kind()) +
                                    " inside a namespace is not supported");
}

}  // namespace

absl::Status Interpreter::run(const Body& body) {
  for (const Statement& statement : body) {
    HS_RETURN_IF_ERROR(at_line(statement.line, budget_.charge_steps(1)));
    HS_RETURN_IF_ERROR(std::visit([&](const auto& node) { return execute(node, statement.line); },
                                  statement.node));
  }
  return absl::OkStatus();
}

absl::Status Interpreter::write(const MarkedString& text) {
  if (text.size() > Budget::kMaxOutputBytes - output_.size()) {
    return absl::ResourceExhaustedError("output of more than " +
                                        std::to_string(Budget::kMaxOutputBytes) + " bytes");
  }
  output_.append(text);
  return absl::OkStatus();
}

absl::Status Interpreter::execute(const Text& statement, int line) {
  return at_line(line, write(statement.text));
}

absl::Status Interpreter::execute(const Output& statement, int line) {
  HS_ASSIGN_OR_RETURN(const Value value, evaluate(*statement.expression));
  HS_ASSIGN_OR_RETURN(const MarkedString text, at_line(line, to_text(value)));
  return at_line(line, write(text));
}

absl::Status Interpreter::execute(const If& statement, int) {
  for (const auto& [condition, body] : statement.branches) {
    HS_ASSIGN_OR_RETURN(const Value holds, evaluate(*condition));
    if (holds.truthy()) return run(body);
  }
  return run(statement.otherwise);
}

// Every iteration has a scope of its own: what is set in it does not outlive it.
absl::Status Interpreter::execute(const For& statement, int line) {
  HS_ASSIGN_OR_RETURN(const Value iterable, evaluate(*statement.iterable));
  HS_ASSIGN_OR_RETURN(const List items, at_line(line, elements_of(iterable, budget_)));
  LoopState loop{0, static_cast<std::int64_t>(items.size())};
  for (const Value& item : items) {
    scopes_.emplace_back();
    scopes_.back().insert_or_assign("loop", Value(loop));
    HS_RETURN_IF_ERROR(at_line(line, budget_.charge_steps(1)));
    HS_RETURN_IF_ERROR(bind_targets(statement, item, line));
    HS_RETURN_IF_ERROR(run(statement.body));
    scopes_.pop_back();
    ++loop.index0;
  }
  if (!items.empty()) return absl::OkStatus();
  scopes_.emplace_back();
  HS_RETURN_IF_ERROR(run(statement.otherwise));
  scopes_.pop_back();
  return absl::OkStatus();
}

absl::Status Interpreter::bind_targets(const For& statement, const Value& item, int line) {
  Scope& scope = scopes_.back();
  if (statement.targets.size() == 1) {
    scope.insert_or_assign(statement.targets.front(), item);
    return absl::OkStatus();
  }
  HS_ASSIGN_OR_RETURN(const List parts, at_line(line, elements_of(item, budget_)));
  if (parts.size() != statement.targets.size()) {
    return invalid_at(line, "cannot unpack " + std::to_string(parts.size()) + " values into " +
                                std::to_string(statement.targets.size()) + " names");
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    scope.insert_or_assign(statement.targets[i], parts[i]);
  }
  return absl::OkStatus();
}

absl::Status Interpreter::execute(const Set& statement, int line) {
  HS_ASSIGN_OR_RETURN(Value value, evaluate(*statement.value));
  if (!statement.attribute) {
    scopes_.back().insert_or_assign(statement.name, std::move(value));
    return absl::OkStatus();
  }
  const Value* target = find(statement.name);
  Namespace* space = target ? target->as_namespace() : nullptr;
  if (!space) return invalid_at(line, "'" + statement.name + "' is not a namespace");
  HS_RETURN_IF_ERROR(at_line(line, check_storable(value)));
  space->entries.insert_or_assign(*statement.attribute, std::move(value));
  return absl::OkStatus();
}

const Value* Interpreter::find(std::string_view name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->find(name);
    if (found != scope->end()) return &found->second;
  }
  return nullptr;
}

Interpreter::Result Interpreter::evaluate(const Expression& expression) {
  HS_RETURN_IF_ERROR(at_line(expression.line, budget_.charge_steps(1)));
  return std::visit([&](const auto& node) { return evaluate(node, expression.line); },
                    expression.node);
}

Interpreter::Result Interpreter::evaluate_or(const ExpressionPtr& expression, Value fallback) {
  return expression ? evaluate(*expression) : Result(std::move(fallback));
}

Interpreter::Result Interpreter::evaluate(const Literal& node, int) { return node.value; }

Interpreter::Result Interpreter::evaluate(const Name& node, int) {
  const Value* found = find(node.name);
  return found ? *found : Value();
}

Interpreter::Result Interpreter::evaluate(const Attribute& node, int line) {
  HS_ASSIGN_OR_RETURN(const Value object, evaluate(*node.object));
  return at_line(line, get_attribute(object, node.name));
}

Interpreter::Result Interpreter::evaluate(const Index& node, int line) {
  HS_ASSIGN_OR_RETURN(const Value object, evaluate(*node.object));
  HS_ASSIGN_OR_RETURN(const Value index, evaluate(*node.index));
  return at_line(line, get_index(object, index, budget_));
}

Interpreter::Result Interpreter::evaluate(const Slice& node, int line) {
  HS_ASSIGN_OR_RETURN(const Value object, evaluate(*node.object));
  SliceBounds bounds;
  HS_ASSIGN_OR_RETURN(bounds.start, evaluate_or(node.start, Value(None{})));
  HS_ASSIGN_OR_RETURN(bounds.stop, evaluate_or(node.stop, Value(None{})));
  HS_ASSIGN_OR_RETURN(bounds.step, evaluate_or(node.step, Value(None{})));
  return at_line(line, get_slice(object, bounds, budget_));
}

Interpreter::Result Interpreter::evaluate(const Unary& node, int line) {
  HS_ASSIGN_OR_RETURN(const Value operand, evaluate(*node.operand));
  if (node.operation == UnaryOperator::kNot) return Value(!operand.truthy());
  return at_line(line, apply_sign(node.operation, operand));
}

// `and` and `or` give one of their operands, as in Python.
Interpreter::Result Interpreter::evaluate(const Binary& node, int line) {
  HS_ASSIGN_OR_RETURN(Value left, evaluate(*node.left));
  if (node.operation == BinaryOperator::kAnd) return left.truthy() ? evaluate(*node.right) : left;
  if (node.operation == BinaryOperator::kOr) return left.truthy() ? left : evaluate(*node.right);
  HS_ASSIGN_OR_RETURN(const Value right, evaluate(*node.right));
  return at_line(line, apply_binary(node.operation, left, right, budget_));
}

Interpreter::Result Interpreter::evaluate(const Comparison& node, int line) {
  HS_ASSIGN_OR_RETURN(Value left, evaluate(*node.first));
  for (const auto& [operation, operand] : node.rest) {
    HS_ASSIGN_OR_RETURN(Value right, evaluate(*operand));
    HS_ASSIGN_OR_RETURN(const bool holds, at_line(line, compare(operation, left, right, budget_)));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Interpreter::Result Interpreter::evaluate(const Conditional& node, int) {
  HS_ASSIGN_OR_RETURN(const Value condition, evaluate(*node.condition));
  return condition.truthy() ? evaluate(*node.then) : evaluate_or(node.otherwise, Value());
}

Interpreter::Result Interpreter::evaluate(const ListLiteral& node, int line) {
  List list;
  list.reserve(node.elements.size());
  for (const ExpressionPtr& element : node.elements) {
    HS_ASSIGN_OR_RETURN(Value value, evaluate(*element));
    list.push_back(std::move(value));
  }
  return at_line(line, Value::make_list(std::move(list)));
}

Interpreter::Result Interpreter::evaluate(const DictLiteral& node, int line) {
  Dict dict;
  for (const auto& [key_expression, value_expression] : node.entries) {
    HS_ASSIGN_OR_RETURN(const Value key, evaluate(*key_expression));
    HS_ASSIGN_OR_RETURN(Value value, evaluate(*value_expression));
    const MarkedString* name = key.as_string();
    if (!name) return unsupported_at(line, "a dict key that is a " + std::string(key.kind()));
    HS_RETURN_IF_ERROR(at_line(line, budget_.charge_steps(dict.size())));
    const auto same = [&](const auto& entry) { return entry.first.text() == name->text(); };
    if (const auto found = std::find_if(dict.begin(), dict.end(), same); found != dict.end()) {
      found->second = std::move(value);
    } else {
      dict.emplace_back(*name, std::move(value));
    }
  }
  return at_line(line, Value::make_dict(std::move(dict)));
}

Interpreter::Result Interpreter::evaluate(const Call& node, int line) {
  HS_ASSIGN_OR_RETURN(const Value self, evaluate(*node.self));
  std::vector<std::optional<Value>> arguments(node.arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!node.arguments[i]) continue;
    HS_ASSIGN_OR_RETURN(arguments[i], evaluate(*node.arguments[i]));
  }
  return at_line(line, node.callee->run(self, arguments, budget_));
}

Interpreter::Result Interpreter::evaluate(const TestCall& node, int) {
  HS_ASSIGN_OR_RETURN(const Value operand, evaluate(*node.operand));
  return Value(node.test->holds(operand) != node.negated);
}

Interpreter::Result Interpreter::evaluate(const RaiseException& node, int line) {
  HS_ASSIGN_OR_RETURN(const Value message, evaluate(*node.message));
  HS_ASSIGN_OR_RETURN(const MarkedString text, at_line(line, to_text(message)));
  return absl::InvalidArgumentError(text.text());
}

Interpreter::Result Interpreter::evaluate(const MakeNamespace& node, int line) {
  auto space = std::make_shared<Namespace>();
  for (const auto& [name, expression] : node.entries) {
    HS_ASSIGN_OR_RETURN(Value value, evaluate(*expression));
    HS_RETURN_IF_ERROR(at_line(line, check_storable(value)));
    space->entries.insert_or_assign(name, std::move(value));
  }
  return Value(std::move(space));
}

}  // namespace hisparse::text::jinja
