// Values of the template language. Strings know which of their bytes came from a user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer.h"

namespace hisparse::text::jinja {

// Valid UTF-8 and the byte ranges of it that came from a message. Ranges are sorted, disjoint, not
// empty and not adjacent.
class MarkedString {
 public:
  MarkedString() = default;
  static MarkedString from_template(std::string text);
  static MarkedString from_user(std::string text);

  const std::string& text() const { return text_; }
  const std::vector<UserSpan>& spans() const { return spans_; }
  bool empty() const { return text_.empty(); }
  std::size_t size() const { return text_.size(); }

  void append(const MarkedString& other);
  void append(std::string_view template_text) { text_.append(template_text); }
  // Bytes [begin, end), which are borders of code points.
  MarkedString slice(std::size_t begin, std::size_t end) const;

 private:
  std::string text_;
  std::vector<UserSpan> spans_;
};

class Value;
using List = std::vector<Value>;
// In the order of insertion. Dicts come from literals and messages only, so they are small.
using Dict = std::vector<std::pair<MarkedString, Value>>;
struct Namespace;

struct Undefined {};
struct None {};

// The `loop` variable.
struct LoopState {
  std::int64_t index0 = 0;
  std::int64_t length = 0;
};

// Copies share what is behind them; only a Namespace can change. Lists and dicts know their depth,
// which is bounded, so that recursion over a value is; a namespace is never inside another value,
// so no cycles.
class Value {
 public:
  static constexpr int kMaxDepth = 32;

  Value() = default;  // undefined
  explicit Value(None none) : data_(none) {}
  explicit Value(bool value) : data_(value) {}
  explicit Value(std::int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(LoopState loop) : data_(loop) {}
  explicit Value(MarkedString value)
      : data_(std::make_shared<const MarkedString>(std::move(value))) {}
  explicit Value(std::shared_ptr<Namespace> value) : data_(std::move(value)) {}
  // Errors: nesting beyond kMaxDepth, or a namespace among the elements.
  static absl::StatusOr<Value> make_list(List list);
  static absl::StatusOr<Value> make_dict(Dict dict);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  // Null or nullopt-like access: null when of another kind.
  const bool* as_bool() const { return std::get_if<bool>(&data_); }
  const std::int64_t* as_int() const { return std::get_if<std::int64_t>(&data_); }
  const double* as_double() const { return std::get_if<double>(&data_); }
  const LoopState* as_loop() const { return std::get_if<LoopState>(&data_); }
  const MarkedString* as_string() const { return pointee<const MarkedString>(); }
  const List* as_list() const { return pointee<const List>(); }
  const Dict* as_dict() const { return pointee<const Dict>(); }
  Namespace* as_namespace() const { return pointee<Namespace>(); }

  bool truthy() const;
  int depth() const { return depth_; }
  // Python's name of the kind, for errors ("str", "NoneType").
  std::string_view kind() const;

 private:
  template <typename T>
  T* pointee() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&data_);
    return pointer ? pointer->get() : nullptr;
  }

  std::variant<Undefined, None, bool, std::int64_t, double, LoopState,
               std::shared_ptr<const MarkedString>, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>>
      data_;
  int depth_ = 0;  // of lists and dicts
};

struct Namespace {
  std::map<std::string, Value, std::less<>> entries;
};

inline Value make_string(std::string_view text) {
  return Value(MarkedString::from_template(std::string(text)));
}

// The entry of `dict` under `key`, or null.
const Value* find_key(const Dict& dict, std::string_view key);

// Python's str() of a scalar; undefined prints as nothing. InvalidArgument for lists, dicts and
// others, whose printed form no template should need.
absl::StatusOr<MarkedString> to_text(const Value& value);

// Python's repr() of a float.
std::string format_double(double value);

// Python's str.isspace() for one code point.
bool is_python_space(char32_t code_point);

}  // namespace hisparse::text::jinja
