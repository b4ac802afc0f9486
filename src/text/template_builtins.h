// Filters, tests and methods of the template language: found by name when parsing, called when
// rendering.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/template_budget.h"
#include "text/template_value.h"

namespace hisparse::text::jinja {

// Positional arguments; nullopt where one was left out.
using Arguments = std::span<const std::optional<Value>>;

struct CallSpec {
  static constexpr std::size_t kMaxParameters = 3;

  std::string_view name;
  // Names of the parameters; "-" takes no keyword. The first `required` must be given.
  std::array<std::string_view, kMaxParameters> parameters;
  std::size_t required;
  absl::StatusOr<Value> (*run)(const Value& self, Arguments arguments, Budget& budget);

  std::size_t parameter_count() const;
};

struct TestSpec {
  std::string_view name;
  bool (*holds)(const Value& value);
};

// Null when there is none of that name.
const CallSpec* find_filter(std::string_view name);
const CallSpec* find_method(std::string_view name);
const TestSpec* find_test(std::string_view name);

}  // namespace hisparse::text::jinja
