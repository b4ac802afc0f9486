// Looking into values: attributes, subscripts, slices, iteration.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "text/template_budget.h"
#include "text/template_value.h"

namespace hisparse::text::jinja {

// Errors carry no line. What is not there is undefined; looking into an undefined value is
// InvalidArgument.
absl::StatusOr<Value> get_attribute(const Value& object, std::string_view name);
absl::StatusOr<Value> get_index(const Value& object, const Value& index, Budget& budget);

struct SliceBounds {  // none where left out; integers otherwise
  Value start;
  Value stop;
  Value step;
};
// Of a list or, by code points, of a string.
absl::StatusOr<Value> get_slice(const Value& object, const SliceBounds& bounds, Budget& budget);

// What a loop over `value` visits: elements, keys, or code points as strings; nothing for
// undefined.
absl::StatusOr<List> elements_of(const Value& value, Budget& budget);

}  // namespace hisparse::text::jinja
