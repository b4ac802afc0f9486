#include "text/template_operators.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "base/status.h"

namespace hisparse::text::jinja {
namespace {

absl::Status bad_operands(std::string_view operation, const Value& left, const Value& right) {
  return absl::InvalidArgumentError("'" + std::string(operation) + "' between " +
                                    std::string(left.kind()) + " and " + std::string(right.kind()) +
                                    " is not supported");
}

std::string_view spelling(BinaryOperator operation) {
  switch (operation) {
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kFloorDivide:
      return "//";
    case BinaryOperator::kModulo:
      return "%";
    case BinaryOperator::kConcat:
      return "~";
    case BinaryOperator::kAnd:
    case BinaryOperator::kOr:
      break;
  }
  return "and/or";
}

// Python's bool is an int: True + 1 == 2, True == 1.
std::optional<std::int64_t> integral(const Value& value) {
  if (const bool* flag = value.as_bool()) return *flag ? 1 : 0;
  if (const std::int64_t* integer = value.as_int()) return *integer;
  return std::nullopt;
}

std::optional<double> real(const Value& value) {
  if (const double* number = value.as_double()) return *number;
  if (const auto integer = integral(value)) return static_cast<double>(*integer);
  return std::nullopt;
}

absl::Status zero_division() { return absl::InvalidArgumentError("division by zero"); }

absl::StatusOr<Value> integer_arithmetic(BinaryOperator operation, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (operation) {
    case BinaryOperator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOperator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOperator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOperator::kDivide:
      if (b == 0) return zero_division();
      return Value(static_cast<double>(a) / static_cast<double>(b));
    default: {
      if (b == 0) return zero_division();
      // The quotient is rounded down and the remainder has the sign of the divisor; -1 is apart
      // because the least integer has no positive counterpart.
      const bool quotient = operation == BinaryOperator::kFloorDivide;
      if (b == -1) {
        overflow = quotient && __builtin_sub_overflow(std::int64_t{0}, a, &result);
        break;
      }
      const bool adjust = a % b != 0 && ((a % b < 0) != (b < 0));
      result = quotient ? a / b - (adjust ? 1 : 0) : a % b + (adjust ? b : 0);
    }
  }
  if (overflow) return absl::InvalidArgumentError("integer beyond 64 bits");
  return Value(result);
}

absl::StatusOr<Value> real_arithmetic(BinaryOperator operation, double a, double b) {
  switch (operation) {
    case BinaryOperator::kAdd:
      return Value(a + b);
    case BinaryOperator::kSubtract:
      return Value(a - b);
    case BinaryOperator::kMultiply:
      return Value(a * b);
    case BinaryOperator::kDivide:
      if (b == 0.0) return zero_division();
      return Value(a / b);
    default: {
      if (b == 0.0) return zero_division();
      double remainder = std::fmod(a, b);
      if (remainder != 0.0 && (remainder < 0.0) != (b < 0.0)) remainder += b;
      if (remainder == 0.0) remainder = std::copysign(0.0, b);
      if (operation == BinaryOperator::kModulo) return Value(remainder);
      const double quotient = (a - remainder) / b;
      return Value(quotient == 0.0 ? std::copysign(0.0, a / b) : std::round(quotient));
    }
  }
}

absl::StatusOr<Value> concatenate(const MarkedString& left, const MarkedString& right,
                                  Budget& budget) {
  MarkedString text = left;
  text.append(right);
  return new_string(std::move(text), budget);
}

absl::StatusOr<Value> concatenate_lists(const List& left, const List& right, Budget& budget) {
  HS_RETURN_IF_ERROR(budget.charge_steps(left.size() + right.size()));
  List list = left;
  list.insert(list.end(), right.begin(), right.end());
  return Value::make_list(std::move(list));
}

absl::StatusOr<Value> repeat(const MarkedString& text, std::int64_t times, Budget& budget) {
  if (times <= 0 || text.empty()) return make_string("");
  HS_RETURN_IF_ERROR(budget.charge_steps(static_cast<std::size_t>(times)));
  MarkedString result;
  for (std::int64_t i = 0; i < times; ++i) {
    HS_RETURN_IF_ERROR(budget.charge_bytes(text.size()));
    result.append(text);
  }
  return Value(std::move(result));
}

bool equal_integer_real(std::int64_t integer, double number) {
  // Exact, as in Python: the double is compared as an integer where it is one.
  constexpr double kTwoTo63 = 9223372036854775808.0;
  return number == std::floor(number) && number >= -kTwoTo63 && number < kTwoTo63 &&
         static_cast<std::int64_t>(number) == integer;
}

absl::StatusOr<bool> equal_lists(const List& a, const List& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    HS_ASSIGN_OR_RETURN(const bool same, equal(a[i], b[i], budget));
    if (!same) return false;
  }
  return true;
}

absl::StatusOr<bool> equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a) {
    HS_RETURN_IF_ERROR(budget.charge_steps(b.size()));
    const Value* other = find_key(b, key.text());
    if (!other) return false;
    HS_ASSIGN_OR_RETURN(const bool same, equal(value, *other, budget));
    if (!same) return false;
  }
  return true;
}

absl::StatusOr<bool> contains(const Value& element, const Value& container, Budget& budget) {
  if (const MarkedString* text = container.as_string()) {
    const MarkedString* needle = element.as_string();
    if (!needle) return bad_operands("in", element, container);
    HS_RETURN_IF_ERROR(charge_search(text->size(), needle->size(), budget));
    return text->text().find(needle->text()) != std::string::npos;
  }
  if (const List* list = container.as_list()) {
    for (const Value& candidate : *list) {
      HS_ASSIGN_OR_RETURN(const bool same, equal(candidate, element, budget));
      if (same) return true;
    }
    return false;
  }
  if (const Dict* dict = container.as_dict()) {
    HS_RETURN_IF_ERROR(budget.charge_steps(dict->size()));
    return element.as_string() && find_key(*dict, element.as_string()->text());
  }
  if (container.is_undefined()) return false;
  return bad_operands("in", element, container);
}

// -1, 0, 1; 2 when a NaN makes every comparison false.
absl::StatusOr<int> order(const Value& left, const Value& right, Budget& budget) {
  constexpr int kUnordered = 2;
  if (const auto a = integral(left), b = integral(right); a && b) {
    return (*a > *b) - (*a < *b);
  }
  if (const auto a = real(left), b = real(right); a && b) {
    if (std::isnan(*a) || std::isnan(*b)) return kUnordered;
    return (*a > *b) - (*a < *b);
  }
  if (left.as_string() && right.as_string()) {
    const std::string& a = left.as_string()->text();
    const std::string& b = right.as_string()->text();
    HS_RETURN_IF_ERROR(budget.charge_bytes(std::min(a.size(), b.size())));
    const int result = a.compare(b);  // UTF-8 sorts like its code points
    return (result > 0) - (result < 0);
  }
  return bad_operands("<", left, right);
}

}  // namespace

absl::StatusOr<Value> apply_binary(BinaryOperator operation, const Value& left, const Value& right,
                                   Budget& budget) {
  if (operation == BinaryOperator::kConcat) {
    HS_ASSIGN_OR_RETURN(const MarkedString a, to_text(left));
    HS_ASSIGN_OR_RETURN(const MarkedString b, to_text(right));
    return concatenate(a, b, budget);
  }
  if (const auto a = integral(left), b = integral(right); a && b) {
    return integer_arithmetic(operation, *a, *b);
  }
  if (const auto a = real(left), b = real(right); a && b) {
    return real_arithmetic(operation, *a, *b);
  }
  if (operation == BinaryOperator::kAdd) {
    if (left.as_string() && right.as_string()) {
      return concatenate(*left.as_string(), *right.as_string(), budget);
    }
    if (left.as_list() && right.as_list()) {
      return concatenate_lists(*left.as_list(), *right.as_list(), budget);
    }
  }
  if (operation == BinaryOperator::kMultiply) {
    if (left.as_string() && integral(right))
      return repeat(*left.as_string(), *integral(right), budget);
    if (right.as_string() && integral(left))
      return repeat(*right.as_string(), *integral(left), budget);
  }
  return bad_operands(spelling(operation), left, right);
}

absl::StatusOr<Value> apply_sign(UnaryOperator operation, const Value& operand) {
  const bool minus = operation == UnaryOperator::kMinus;
  if (const auto integer = integral(operand)) {
    return integer_arithmetic(minus ? BinaryOperator::kSubtract : BinaryOperator::kAdd, 0,
                              *integer);
  }
  if (const double* number = operand.as_double()) return Value(minus ? -*number : *number);
  return absl::InvalidArgumentError("a sign before a " + std::string(operand.kind()) +
                                    " is not supported");
}

absl::StatusOr<bool> equal(const Value& left, const Value& right, Budget& budget) {
  HS_RETURN_IF_ERROR(budget.charge_steps(1));
  const auto int_a = integral(left);
  const auto int_b = integral(right);
  if (int_a && int_b) return *int_a == *int_b;
  if (int_a && right.as_double()) return equal_integer_real(*int_a, *right.as_double());
  if (int_b && left.as_double()) return equal_integer_real(*int_b, *left.as_double());
  if (left.as_double() && right.as_double()) return *left.as_double() == *right.as_double();
  if (left.as_string() && right.as_string()) {
    const std::string& a = left.as_string()->text();
    const std::string& b = right.as_string()->text();
    if (a.size() != b.size()) return false;
    HS_RETURN_IF_ERROR(budget.charge_bytes(a.size()));
    return a == b;
  }
  if (left.as_list() && right.as_list())
    return equal_lists(*left.as_list(), *right.as_list(), budget);
  if (left.as_dict() && right.as_dict())
    return equal_dicts(*left.as_dict(), *right.as_dict(), budget);
  if (left.as_namespace()) return left.as_namespace() == right.as_namespace();
  return (left.is_none() && right.is_none()) || (left.is_undefined() && right.is_undefined());
}

absl::StatusOr<bool> compare(CompareOperator operation, const Value& left, const Value& right,
                             Budget& budget) {
  if (operation == CompareOperator::kEqual || operation == CompareOperator::kNotEqual) {
    HS_ASSIGN_OR_RETURN(const bool same, equal(left, right, budget));
    return same == (operation == CompareOperator::kEqual);
  }
  if (operation == CompareOperator::kIn || operation == CompareOperator::kNotIn) {
    HS_ASSIGN_OR_RETURN(const bool found, contains(left, right, budget));
    return found == (operation == CompareOperator::kIn);
  }
  HS_ASSIGN_OR_RETURN(const int sign, order(left, right, budget));
  switch (operation) {
    case CompareOperator::kLess:
      return sign == -1;
    case CompareOperator::kLessEqual:
      return sign == -1 || sign == 0;
    case CompareOperator::kGreater:
      return sign == 1;
    default:
      return sign == 1 || sign == 0;
  }
}

absl::StatusOr<Value> new_string(MarkedString text, Budget& budget) {
  HS_RETURN_IF_ERROR(budget.charge_bytes(text.size() + text.spans().size() * sizeof(UserSpan)));
  return Value(std::move(text));
}

absl::Status charge_search(std::size_t haystack, std::size_t needle, Budget& budget) {
  // The worst case of a plain search; a cache line is compared for the price of a byte.
  constexpr std::size_t kBytesAtOnce = 64;
  return budget.charge_bytes(haystack * (1 + needle / kBytesAtOnce));
}

}  // namespace hisparse::text::jinja
