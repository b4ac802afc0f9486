#include "text/template_access.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/status.h"
#include "text/template_operators.h"
#include "text/template_strings.h"
#include "text/utf8.h"

namespace hisparse::text::jinja {
namespace {

Value loop_attribute(const LoopState& loop, std::string_view name) {
  const std::int64_t left = loop.length - loop.index0;
  if (name == "first") return Value(loop.index0 == 0);
  if (name == "last") return Value(left == 1);
  if (name == "index") return Value(loop.index0 + 1);
  if (name == "index0") return Value(loop.index0);
  if (name == "length") return Value(loop.length);
  if (name == "revindex") return Value(left);
  if (name == "revindex0") return Value(left - 1);
  return Value();
}

// The borders of the code points of `text`, its end included.
std::vector<std::size_t> borders(const std::string& text) {
  std::vector<std::size_t> borders;
  borders.reserve(text.size() + 1);
  std::size_t position = 0;
  while (position < text.size()) {
    borders.push_back(position);
    next_code_point(text, position);
  }
  borders.push_back(position);
  return borders;
}

std::optional<std::int64_t> as_index(const Value& value) {
  if (const bool* flag = value.as_bool()) return *flag ? 1 : 0;
  if (const std::int64_t* integer = value.as_int()) return *integer;
  return std::nullopt;
}

// `index` as Python counts it, or nullopt outside.
std::optional<std::size_t> position_in(std::int64_t index, std::size_t size) {
  const auto length = static_cast<std::int64_t>(size);
  if (index < -length || index >= length) return std::nullopt;
  return static_cast<std::size_t>(index < 0 ? index + length : index);
}

// The byte behind `count` code points from `position` on.
std::size_t skip_code_points(const std::string& text, std::size_t position, std::size_t count) {
  for (; count > 0; --count) next_code_point(text, position);
  return position;
}

absl::StatusOr<Value> character_at(const MarkedString& text, std::int64_t index, Budget& budget) {
  HS_RETURN_IF_ERROR(budget.charge_bytes(text.size()));
  const auto length = static_cast<std::size_t>(length_of(text.text()));
  const std::optional<std::size_t> position = position_in(index, length);
  if (!position) return Value();
  const std::size_t begin = skip_code_points(text.text(), 0, *position);
  return Value(text.slice(begin, skip_code_points(text.text(), begin, 1)));
}

struct Range {  // begin, begin + step, … `count` of them
  std::int64_t begin;
  std::int64_t step;
  std::size_t count;
};

absl::StatusOr<std::int64_t> bound_or(const Value& value, std::int64_t fallback) {
  if (value.is_none()) return fallback;
  if (const std::int64_t* integer = value.as_int()) return *integer;
  return absl::InvalidArgumentError("a slice bound is a " + std::string(value.kind()));
}

// Python's slice.indices().
absl::StatusOr<Range> resolve(const SliceBounds& bounds, std::size_t size) {
  const auto length = static_cast<std::int64_t>(size);
  HS_ASSIGN_OR_RETURN(std::int64_t step, bound_or(bounds.step, 1));
  if (step == 0) return absl::InvalidArgumentError("a slice step is 0");
  // Beyond the length a step is as good as the length, and cannot overflow.
  step = std::clamp(step, -length - 1, length + 1);
  const std::int64_t lowest = step > 0 ? 0 : -1;
  const std::int64_t highest = step > 0 ? length : length - 1;
  const auto clip = [&](std::int64_t index) {
    if (index < 0) index = index < -length ? lowest : index + length;
    return std::clamp(index, lowest, highest);
  };
  std::int64_t start = step > 0 ? lowest : highest;
  std::int64_t stop = step > 0 ? highest : lowest;
  if (!bounds.start.is_none()) {
    HS_ASSIGN_OR_RETURN(start, bound_or(bounds.start, start));
    start = clip(start);
  }
  if (!bounds.stop.is_none()) {
    HS_ASSIGN_OR_RETURN(stop, bound_or(bounds.stop, stop));
    stop = clip(stop);
  }
  const std::int64_t distance = step > 0 ? stop - start : start - stop;
  const std::int64_t stride = step > 0 ? step : -step;
  const std::int64_t count = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  return Range{start, step, static_cast<std::size_t>(count)};
}

absl::StatusOr<Value> slice_string(const MarkedString& text, const SliceBounds& bounds,
                                   Budget& budget) {
  HS_RETURN_IF_ERROR(budget.charge_bytes(text.size()));
  const auto length = static_cast<std::size_t>(length_of(text.text()));
  HS_ASSIGN_OR_RETURN(const Range range, resolve(bounds, length));
  if (range.count == 0) return make_string("");
  if (range.step == 1) {
    const std::size_t begin =
        skip_code_points(text.text(), 0, static_cast<std::size_t>(range.begin));
    return new_string(text.slice(begin, skip_code_points(text.text(), begin, range.count)), budget);
  }
  HS_RETURN_IF_ERROR(budget.charge_steps(range.count));
  HS_RETURN_IF_ERROR(budget.charge_bytes(text.size() * sizeof(std::size_t)));
  const std::vector<std::size_t> at = borders(text.text());
  MarkedString result;
  for (std::size_t i = 0; i < range.count; ++i) {
    const auto position =
        static_cast<std::size_t>(range.begin + static_cast<std::int64_t>(i) * range.step);
    result.append(text.slice(at[position], at[position + 1]));
  }
  return new_string(std::move(result), budget);
}

absl::StatusOr<Value> slice_list(const List& list, const SliceBounds& bounds, Budget& budget) {
  HS_ASSIGN_OR_RETURN(const Range range, resolve(bounds, list.size()));
  HS_RETURN_IF_ERROR(budget.charge_steps(range.count));
  List result;
  result.reserve(range.count);
  for (std::size_t i = 0; i < range.count; ++i) {
    result.push_back(
        list[static_cast<std::size_t>(range.begin + static_cast<std::int64_t>(i) * range.step)]);
  }
  return Value::make_list(std::move(result));
}

}  // namespace

absl::StatusOr<Value> get_attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) {
    return absl::InvalidArgumentError("'" + std::string(name) + "' of an undefined value");
  }
  if (const LoopState* loop = object.as_loop()) return loop_attribute(*loop, name);
  const Value* found = nullptr;
  if (const Dict* dict = object.as_dict()) found = find_key(*dict, name);
  if (const Namespace* space = object.as_namespace()) {
    const auto entry = space->entries.find(name);
    if (entry != space->entries.end()) found = &entry->second;
  }
  return found ? *found : Value();
}

absl::StatusOr<Value> get_index(const Value& object, const Value& index, Budget& budget) {
  if (object.is_undefined()) return absl::InvalidArgumentError("subscript of an undefined value");
  if (const MarkedString* key = index.as_string()) return get_attribute(object, key->text());
  const std::optional<std::int64_t> number = as_index(index);
  if (!number) return Value();
  if (const MarkedString* text = object.as_string()) return character_at(*text, *number, budget);
  const List* list = object.as_list();
  if (!list) return Value();
  const std::optional<std::size_t> position = position_in(*number, list->size());
  return position ? (*list)[*position] : Value();
}

absl::StatusOr<Value> get_slice(const Value& object, const SliceBounds& bounds, Budget& budget) {
  if (const MarkedString* text = object.as_string()) return slice_string(*text, bounds, budget);
  if (const List* list = object.as_list()) return slice_list(*list, bounds, budget);
  return absl::InvalidArgumentError("a slice of a " + std::string(object.kind()));
}

absl::StatusOr<List> elements_of(const Value& value, Budget& budget) {
  List elements;
  if (value.is_undefined()) return elements;
  if (const List* list = value.as_list()) {
    HS_RETURN_IF_ERROR(budget.charge_steps(list->size()));
    return *list;
  }
  if (const Dict* dict = value.as_dict()) {
    HS_RETURN_IF_ERROR(budget.charge_steps(dict->size()));
    for (const auto& [key, element] : *dict) elements.push_back(Value(key));
    return elements;
  }
  if (const MarkedString* text = value.as_string()) {
    HS_RETURN_IF_ERROR(budget.charge_steps(text->size()));
    const std::vector<std::size_t> at = borders(text->text());
    for (std::size_t i = 0; i + 1 < at.size(); ++i) {
      elements.push_back(Value(text->slice(at[i], at[i + 1])));
    }
    return elements;
  }
  return absl::InvalidArgumentError("a " + std::string(value.kind()) + " is not iterable");
}

}  // namespace hisparse::text::jinja
