// Python's escapes inside string literals.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hisparse::text::jinja {

// `body` is what stands between the quotes: valid UTF-8 in which a backslash is never last. Unknown
// escapes stay as written, as in Python. InvalidArgument for \N{...}, surrogates and cut-off
// numbers.
absl::StatusOr<std::string> resolve_escapes(std::string_view body);

}  // namespace hisparse::text::jinja
