#include "text/template_builtins.h"

#include <algorithm>

#include "base/status.h"
#include "text/template_access.h"
#include "text/template_operators.h"
#include "text/template_strings.h"

namespace hisparse::text::jinja {
namespace {

constexpr std::string_view kPositionalOnly = "-";

absl::Status type_error(std::string_view what, const Value& value) {
  return absl::InvalidArgumentError(std::string(what) + " of a " + std::string(value.kind()) +
                                    " is not supported");
}

absl::StatusOr<const MarkedString*> string_argument(const Value& value) {
  if (const MarkedString* text = value.as_string()) return text;
  return absl::InvalidArgumentError("expected a str argument, got a " + std::string(value.kind()));
}

bool given(const std::optional<Value>& argument) { return argument && !argument->is_none(); }

absl::StatusOr<std::int64_t> integer_or(const std::optional<Value>& argument,
                                        std::int64_t fallback) {
  if (!argument) return fallback;
  if (const std::int64_t* integer = argument->as_int()) return *integer;
  return absl::InvalidArgumentError("expected an int argument, got a " +
                                    std::string(argument->kind()));
}

absl::StatusOr<Value> strip_text(const MarkedString& text, StripSide side, Arguments arguments,
                                 Budget& budget) {
  std::optional<std::string_view> characters;
  if (given(arguments[0])) {
    HS_ASSIGN_OR_RETURN(const MarkedString* chosen, string_argument(*arguments[0]));
    characters = chosen->text();
  }
  return new_string(strip(text, side, characters), budget);
}

// Filters: `self` is whatever stands before the bar.

absl::StatusOr<Value> filter_trim(const Value& self, Arguments arguments, Budget& budget) {
  HS_ASSIGN_OR_RETURN(const MarkedString text, to_text(self));
  return strip_text(text, StripSide::kBoth, arguments, budget);
}

absl::StatusOr<Value> filter_length(const Value& self, Arguments, Budget& budget) {
  if (self.is_undefined()) return Value(std::int64_t{0});
  if (const List* list = self.as_list()) return Value(static_cast<std::int64_t>(list->size()));
  if (const Dict* dict = self.as_dict()) return Value(static_cast<std::int64_t>(dict->size()));
  const MarkedString* text = self.as_string();
  if (!text) return type_error("the length", self);
  HS_RETURN_IF_ERROR(budget.charge_bytes(text->size()));
  return Value(length_of(text->text()));
}

absl::StatusOr<Value> case_filter(const Value& self, LetterCase to, Budget& budget) {
  HS_ASSIGN_OR_RETURN(const MarkedString text, to_text(self));
  return new_string(change_case(text, to), budget);
}
absl::StatusOr<Value> filter_upper(const Value& self, Arguments, Budget& budget) {
  return case_filter(self, LetterCase::kUpper, budget);
}
absl::StatusOr<Value> filter_lower(const Value& self, Arguments, Budget& budget) {
  return case_filter(self, LetterCase::kLower, budget);
}

absl::StatusOr<Value> filter_default(const Value& self, Arguments arguments, Budget&) {
  const bool also_falsy = arguments[1] && arguments[1]->truthy();
  if (!self.is_undefined() && (self.truthy() || !also_falsy)) return self;
  return arguments[0] ? *arguments[0] : make_string("");
}

absl::StatusOr<Value> filter_join(const Value& self, Arguments arguments, Budget& budget) {
  HS_ASSIGN_OR_RETURN(const List elements, elements_of(self, budget));
  MarkedString separator;
  if (arguments[0]) {
    HS_ASSIGN_OR_RETURN(separator, to_text(*arguments[0]));
  }
  MarkedString joined;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    HS_ASSIGN_OR_RETURN(const MarkedString text, to_text(elements[i]));
    HS_RETURN_IF_ERROR(budget.charge_bytes(text.size() + separator.size()));
    if (i > 0) joined.append(separator);
    joined.append(text);
  }
  return new_string(std::move(joined), budget);
}

// The element at `index`, 0 or -1, without visiting all code points of a long string as values.
absl::StatusOr<Value> end_filter(const Value& self, std::int64_t index, Budget& budget) {
  if (self.as_string()) return get_index(self, Value(index), budget);
  HS_ASSIGN_OR_RETURN(const List elements, elements_of(self, budget));
  if (elements.empty()) return Value();
  return index == 0 ? elements.front() : elements.back();
}
absl::StatusOr<Value> filter_first(const Value& self, Arguments, Budget& budget) {
  return end_filter(self, 0, budget);
}
absl::StatusOr<Value> filter_last(const Value& self, Arguments, Budget& budget) {
  return end_filter(self, -1, budget);
}

absl::StatusOr<Value> filter_string(const Value& self, Arguments, Budget& budget) {
  HS_ASSIGN_OR_RETURN(MarkedString text, to_text(self));
  return new_string(std::move(text), budget);
}

// Methods: `self` is of the kind that has the method, or it is an error.

absl::StatusOr<const MarkedString*> string_self(const Value& self) {
  if (const MarkedString* text = self.as_string()) return text;
  return type_error("a str method", self);
}
absl::StatusOr<const Dict*> dict_self(const Value& self) {
  if (const Dict* dict = self.as_dict()) return dict;
  return type_error("a dict method", self);
}

absl::StatusOr<Value> strip_method(const Value& self, StripSide side, Arguments arguments,
                                   Budget& budget) {
  HS_ASSIGN_OR_RETURN(const MarkedString* text, string_self(self));
  return strip_text(*text, side, arguments, budget);
}
absl::StatusOr<Value> method_strip(const Value& self, Arguments arguments, Budget& budget) {
  return strip_method(self, StripSide::kBoth, arguments, budget);
}
absl::StatusOr<Value> method_lstrip(const Value& self, Arguments arguments, Budget& budget) {
  return strip_method(self, StripSide::kLeft, arguments, budget);
}
absl::StatusOr<Value> method_rstrip(const Value& self, Arguments arguments, Budget& budget) {
  return strip_method(self, StripSide::kRight, arguments, budget);
}

absl::StatusOr<Value> method_startswith(const Value& self, Arguments arguments, Budget& budget) {
  HS_ASSIGN_OR_RETURN(const MarkedString* text, string_self(self));
  HS_ASSIGN_OR_RETURN(const MarkedString* prefix, string_argument(*arguments[0]));
  HS_RETURN_IF_ERROR(budget.charge_bytes(prefix->size()));
  return Value(text->text().starts_with(prefix->text()));
}
absl::StatusOr<Value> method_endswith(const Value& self, Arguments arguments, Budget& budget) {
  HS_ASSIGN_OR_RETURN(const MarkedString* text, string_self(self));
  HS_ASSIGN_OR_RETURN(const MarkedString* suffix, string_argument(*arguments[0]));
  HS_RETURN_IF_ERROR(budget.charge_bytes(suffix->size()));
  return Value(text->text().ends_with(suffix->text()));
}

absl::StatusOr<Value> method_split(const Value& self, Arguments arguments, Budget& budget) {
  HS_ASSIGN_OR_RETURN(const MarkedString* text, string_self(self));
  std::optional<std::string_view> separator;
  if (given(arguments[0])) {
    HS_ASSIGN_OR_RETURN(const MarkedString* chosen, string_argument(*arguments[0]));
    if (chosen->empty()) return absl::InvalidArgumentError("empty separator");
    separator = chosen->text();
  }
  HS_ASSIGN_OR_RETURN(const std::int64_t most_splits, integer_or(arguments[1], -1));
  HS_ASSIGN_OR_RETURN(List parts, split(*text, separator, most_splits, budget));
  return Value::make_list(std::move(parts));
}

absl::StatusOr<Value> method_replace(const Value& self, Arguments arguments, Budget& budget) {
  HS_ASSIGN_OR_RETURN(const MarkedString* text, string_self(self));
  HS_ASSIGN_OR_RETURN(const MarkedString* old, string_argument(*arguments[0]));
  HS_ASSIGN_OR_RETURN(const MarkedString* replacement, string_argument(*arguments[1]));
  HS_ASSIGN_OR_RETURN(const std::int64_t most, integer_or(arguments[2], -1));
  if (old->empty())
    return absl::InvalidArgumentError("replacing the empty string is not supported");
  return replace(*text, old->text(), *replacement, most, budget);
}

absl::StatusOr<Value> method_upper(const Value& self, Arguments, Budget& budget) {
  HS_ASSIGN_OR_RETURN(const MarkedString* text, string_self(self));
  return new_string(change_case(*text, LetterCase::kUpper), budget);
}
absl::StatusOr<Value> method_lower(const Value& self, Arguments, Budget& budget) {
  HS_ASSIGN_OR_RETURN(const MarkedString* text, string_self(self));
  return new_string(change_case(*text, LetterCase::kLower), budget);
}

absl::StatusOr<Value> method_get(const Value& self, Arguments arguments, Budget& budget) {
  HS_ASSIGN_OR_RETURN(const Dict* dict, dict_self(self));
  HS_RETURN_IF_ERROR(budget.charge_steps(dict->size()));
  const MarkedString* key = arguments[0]->as_string();
  if (const Value* found = key ? find_key(*dict, key->text()) : nullptr) return *found;
  return arguments[1] ? *arguments[1] : Value(None{});
}

absl::StatusOr<Value> method_items(const Value& self, Arguments, Budget& budget) {
  HS_ASSIGN_OR_RETURN(const Dict* dict, dict_self(self));
  HS_RETURN_IF_ERROR(budget.charge_steps(dict->size()));
  List items;
  for (const auto& [key, value] : *dict) {
    HS_ASSIGN_OR_RETURN(Value pair, Value::make_list({Value(key), value}));
    items.push_back(std::move(pair));
  }
  return Value::make_list(std::move(items));
}

constexpr std::array kFilters = {
    CallSpec{"trim", {"chars"}, 0, filter_trim},
    CallSpec{"length", {}, 0, filter_length},
    CallSpec{"count", {}, 0, filter_length},
    CallSpec{"upper", {}, 0, filter_upper},
    CallSpec{"lower", {}, 0, filter_lower},
    CallSpec{"default", {"default_value", "boolean"}, 0, filter_default},
    CallSpec{"d", {"default_value", "boolean"}, 0, filter_default},
    CallSpec{"join", {"d"}, 0, filter_join},
    CallSpec{"first", {}, 0, filter_first},
    CallSpec{"last", {}, 0, filter_last},
    CallSpec{"string", {}, 0, filter_string},
};

constexpr std::array kMethods = {
    CallSpec{"strip", {kPositionalOnly}, 0, method_strip},
    CallSpec{"lstrip", {kPositionalOnly}, 0, method_lstrip},
    CallSpec{"rstrip", {kPositionalOnly}, 0, method_rstrip},
    CallSpec{"startswith", {kPositionalOnly}, 1, method_startswith},
    CallSpec{"endswith", {kPositionalOnly}, 1, method_endswith},
    CallSpec{"split", {"sep", "maxsplit"}, 0, method_split},
    CallSpec{"replace", {kPositionalOnly, kPositionalOnly, kPositionalOnly}, 2, method_replace},
    CallSpec{"upper", {}, 0, method_upper},
    CallSpec{"lower", {}, 0, method_lower},
    CallSpec{"get", {kPositionalOnly, kPositionalOnly}, 1, method_get},
    CallSpec{"items", {}, 0, method_items},
};

constexpr std::array kTests = {
    TestSpec{"defined", [](const Value& v) { return !v.is_undefined(); }},
    TestSpec{"undefined", [](const Value& v) { return v.is_undefined(); }},
    TestSpec{"none", [](const Value& v) { return v.is_none(); }},
    TestSpec{"string", [](const Value& v) { return v.as_string() != nullptr; }},
    TestSpec{"mapping", [](const Value& v) { return v.as_dict() != nullptr; }},
    TestSpec{"iterable",
             [](const Value& v) {
               return v.is_undefined() || v.as_string() || v.as_list() || v.as_dict() ||
                      v.as_loop();
             }},
    TestSpec{"boolean", [](const Value& v) { return v.as_bool() != nullptr; }},
    TestSpec{"number", [](const Value& v) { return v.as_bool() || v.as_int() || v.as_double(); }},
    TestSpec{"true", [](const Value& v) { return v.as_bool() && *v.as_bool(); }},
    TestSpec{"false", [](const Value& v) { return v.as_bool() && !*v.as_bool(); }},
};

template <typename Spec, std::size_t kCount>
const Spec* find_spec(const std::array<Spec, kCount>& specs, std::string_view name) {
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const Spec& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

}  // namespace

std::size_t CallSpec::parameter_count() const {
  return static_cast<std::size_t>(
      std::count_if(parameters.begin(), parameters.end(), [](auto p) { return !p.empty(); }));
}

const CallSpec* find_filter(std::string_view name) { return find_spec(kFilters, name); }
const CallSpec* find_method(std::string_view name) { return find_spec(kMethods, name); }
const TestSpec* find_test(std::string_view name) { return find_spec(kTests, name); }

}  // namespace hisparse::text::jinja
