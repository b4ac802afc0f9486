#include "text/template_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/pretokenizer.h"

namespace hisparse::text::jinja {
namespace {

absl::Status check_element(const Value& element, int& depth) {
  if (element.as_namespace() || element.as_loop()) {
    return absl::InvalidArgumentError("a " + std::string(element.kind()) +
                                      " inside another value is not supported");
  }
  depth = std::max(depth, element.depth() + 1);
  if (depth > Value::kMaxDepth) {
    return absl::ResourceExhaustedError("lists and dicts are nested more than " +
                                        std::to_string(Value::kMaxDepth) + " deep");
  }
  return absl::OkStatus();
}

}  // namespace

MarkedString MarkedString::from_template(std::string text) {
  MarkedString marked;
  marked.text_ = std::move(text);
  return marked;
}

MarkedString MarkedString::from_user(std::string text) {
  MarkedString marked = from_template(std::move(text));
  if (!marked.empty()) marked.spans_.push_back({0, marked.size()});
  return marked;
}

void MarkedString::append(const MarkedString& other) {
  const std::size_t offset = text_.size();
  text_.append(other.text_);
  for (const UserSpan& span : other.spans_) {
    const UserSpan moved{span.begin + offset, span.end + offset};
    if (!spans_.empty() && spans_.back().end == moved.begin) {
      spans_.back().end = moved.end;
    } else {
      spans_.push_back(moved);
    }
  }
}

MarkedString MarkedString::slice(std::size_t begin, std::size_t end) const {
  MarkedString part;
  part.text_ = text_.substr(begin, end - begin);
  auto span = std::partition_point(spans_.begin(), spans_.end(),
                                   [&](const UserSpan& user) { return user.end <= begin; });
  for (; span != spans_.end() && span->begin < end; ++span) {
    part.spans_.push_back({std::max(span->begin, begin) - begin, std::min(span->end, end) - begin});
  }
  return part;
}

absl::StatusOr<Value> Value::make_list(List list) {
  Value value;
  value.depth_ = 1;
  for (const Value& element : list) {
    if (absl::Status status = check_element(element, value.depth_); !status.ok()) return status;
  }
  value.data_ = std::make_shared<const List>(std::move(list));
  return value;
}

absl::StatusOr<Value> Value::make_dict(Dict dict) {
  Value value;
  value.depth_ = 1;
  for (const auto& [key, element] : dict) {
    if (absl::Status status = check_element(element, value.depth_); !status.ok()) return status;
  }
  value.data_ = std::make_shared<const Dict>(std::move(dict));
  return value;
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (const bool* flag = as_bool()) return *flag;
  if (const std::int64_t* integer = as_int()) return *integer != 0;
  if (const double* real = as_double()) return *real != 0.0;
  if (const MarkedString* text = as_string()) return !text->empty();
  if (const List* list = as_list()) return !list->empty();
  if (const Dict* dict = as_dict()) return !dict->empty();
  return true;
}

std::string_view Value::kind() const {
  if (is_undefined()) return "undefined value";
  if (is_none()) return "NoneType";
  if (as_bool()) return "bool";
  if (as_int()) return "int";
  if (as_double()) return "float";
  if (as_string()) return "str";
  if (as_list()) return "list";
  if (as_dict()) return "dict";
  return as_namespace() ? "namespace" : "loop";
}

const Value* find_key(const Dict& dict, std::string_view key) {
  const auto found = std::find_if(dict.begin(), dict.end(),
                                  [&](const auto& entry) { return entry.first.text() == key; });
  return found == dict.end() ? nullptr : &found->second;
}

absl::StatusOr<MarkedString> to_text(const Value& value) {
  if (const MarkedString* text = value.as_string()) return *text;
  if (value.is_undefined()) return MarkedString();
  if (value.is_none()) return MarkedString::from_template("None");
  if (const bool* flag = value.as_bool()) {
    return MarkedString::from_template(*flag ? "True" : "False");
  }
  if (const std::int64_t* integer = value.as_int()) {
    return MarkedString::from_template(std::to_string(*integer));
  }
  if (const double* real = value.as_double()) {
    return MarkedString::from_template(format_double(*real));
  }
  return absl::InvalidArgumentError("printing a " + std::string(value.kind()) +
                                    " is not supported");
}

std::string format_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];  // sign, 17 digits, point, exponent
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string scientific(buffer, end.ptr);
  // Python writes exponents only below 1e-4 and from 1e16 on.
  constexpr int kFirstFixed = -4;
  constexpr int kFirstScientific = 16;
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  if (value != 0.0 && (exponent < kFirstFixed || exponent >= kFirstScientific)) return scientific;
  char fixed[64];
  const auto fixed_end =
      std::to_chars(fixed, fixed + sizeof(fixed), value, std::chars_format::fixed);
  std::string text(fixed, fixed_end.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

bool is_python_space(char32_t code_point) {
  return is_white_space(code_point) || (code_point >= 0x1C && code_point <= 0x1F);
}

}  // namespace hisparse::text::jinja
