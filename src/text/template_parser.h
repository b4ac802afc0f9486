// Tokens -> statements.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "text/template_ast.h"

namespace hisparse::text::jinja {

// `source` is valid UTF-8. InvalidArgument for what Jinja refuses too, Unimplemented for constructs
// that we do not have; both name the line and the construct.
absl::StatusOr<Body> parse_template(std::string_view source);

}  // namespace hisparse::text::jinja
