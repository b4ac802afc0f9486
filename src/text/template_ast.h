// The parsed form of a chat template. Plain data, immutable after parsing.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/template_builtins.h"
#include "text/template_value.h"

namespace hisparse::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

enum class UnaryOperator { kNot, kMinus, kPlus };
enum class BinaryOperator {
  kAnd,
  kOr,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kConcat
};
enum class CompareOperator {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Index {
  ExpressionPtr object;
  ExpressionPtr index;
};
struct Slice {  // null bounds are left out
  ExpressionPtr object;
  ExpressionPtr start;
  ExpressionPtr stop;
  ExpressionPtr step;
};
struct Unary {
  UnaryOperator operation;
  ExpressionPtr operand;
};
struct Binary {
  BinaryOperator operation;
  ExpressionPtr left;
  ExpressionPtr right;
};
struct Comparison {  // a < b < c
  ExpressionPtr first;
  std::vector<std::pair<CompareOperator, ExpressionPtr>> rest;
};
struct Conditional {  // `then if condition else otherwise`; null otherwise gives undefined
  ExpressionPtr condition;
  ExpressionPtr then;
  ExpressionPtr otherwise;
};
struct ListLiteral {
  std::vector<ExpressionPtr> elements;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Call {  // a filter or a method; arguments by position, null where left out
  const CallSpec* callee;
  ExpressionPtr self;
  std::vector<ExpressionPtr> arguments;
};
struct TestCall {
  const TestSpec* test;
  ExpressionPtr operand;
  bool negated;
};
struct RaiseException {
  ExpressionPtr message;
};
struct MakeNamespace {
  std::vector<std::pair<std::string, ExpressionPtr>> entries;
};

using ExpressionNode =
    std::variant<Literal, Name, Attribute, Index, Slice, Unary, Binary, Comparison, Conditional,
                 ListLiteral, DictLiteral, Call, TestCall, RaiseException, MakeNamespace>;

struct Expression {
  int line;
  int height;  // of the tree below, bounded by the parser, so that walks over it may recurse
  ExpressionNode node;
};

// The greatest height among the direct parts of `node`; 0 without parts.
int tallest_part(const ExpressionNode& node);

struct Statement;
using Body = std::vector<Statement>;

struct Text {
  MarkedString text;
};
struct Output {
  ExpressionPtr expression;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;  // if, elif, …
  Body otherwise;
};
struct For {
  std::vector<std::string> targets;  // more than one: each item is unpacked
  ExpressionPtr iterable;
  Body body;
  Body otherwise;  // runs when there was nothing to iterate
};
struct Set {
  std::string name;
  std::optional<std::string> attribute;  // of a namespace
  ExpressionPtr value;
};

struct Statement {
  int line;
  std::variant<Text, Output, If, For, Set> node;
};

}  // namespace hisparse::text::jinja
