#include "text/template_ast.h"

#include <algorithm>

namespace hisparse::text::jinja {
namespace {

// The height of the tree that a node makes with the trees in it.
struct HeightOf {
  int tallest = 0;

  void add(const ExpressionPtr& part) {
    if (part) tallest = std::max(tallest, part->height);
  }
  void operator()(const Literal&) {}
  void operator()(const Name&) {}
  void operator()(const Attribute& node) { add(node.object); }
  void operator()(const Index& node) { (add(node.object), add(node.index)); }
  void operator()(const Slice& node) {
    for (const ExpressionPtr* part : {&node.object, &node.start, &node.stop, &node.step})
      add(*part);
  }
  void operator()(const Unary& node) { add(node.operand); }
  void operator()(const Binary& node) { (add(node.left), add(node.right)); }
  void operator()(const Comparison& node) {
    add(node.first);
    for (const auto& [operation, operand] : node.rest) add(operand);
  }
  void operator()(const Conditional& node) {
    for (const ExpressionPtr* part : {&node.condition, &node.then, &node.otherwise}) add(*part);
  }
  void operator()(const ListLiteral& node) {
    for (const ExpressionPtr& element : node.elements) add(element);
  }
  void operator()(const DictLiteral& node) {
    for (const auto& [key, value] : node.entries) (add(key), add(value));
  }
  void operator()(const Call& node) {
    add(node.self);
    for (const ExpressionPtr& argument : node.arguments) add(argument);
  }
  void operator()(const TestCall& node) { add(node.operand); }
  void operator()(const RaiseException& node) { add(node.message); }
  void operator()(const MakeNamespace& node) {
    for (const auto& [name, value] : node.entries) add(value);
  }
};

}  // namespace

int tallest_part(const ExpressionNode& node) {
  HeightOf height;
  std::visit(height, node);
  return height.tallest;
}

}  // namespace hisparse::text::jinja
