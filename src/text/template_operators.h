// Operators of the template language, with Python's semantics.
#pragma once

#include "absl/status/statusor.h"
#include "text/template_ast.h"
#include "text/template_budget.h"
#include "text/template_value.h"

namespace hisparse::text::jinja {

// Errors carry no line: InvalidArgument for types, division by zero and integers beyond 64 bits;
// ResourceExhausted past the budget.

// Every operator but `and` and `or`, which do not always evaluate both sides.
absl::StatusOr<Value> apply_binary(BinaryOperator operation, const Value& left, const Value& right,
                                   Budget& budget);
// Minus and plus.
absl::StatusOr<Value> apply_sign(UnaryOperator operation, const Value& operand);
absl::StatusOr<bool> compare(CompareOperator operation, const Value& left, const Value& right,
                             Budget& budget);
// Python's ==; values of different kinds are unequal, except among bool, int and float.
absl::StatusOr<bool> equal(const Value& left, const Value& right, Budget& budget);

// A string value that is paid for.
absl::StatusOr<Value> new_string(MarkedString text, Budget& budget);
// The cost of looking for `needle` in `haystack`.
absl::Status charge_search(std::size_t haystack, std::size_t needle, Budget& budget);

}  // namespace hisparse::text::jinja
