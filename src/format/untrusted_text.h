// Text that comes out of a file nobody vouches for: checked before it is kept, and made harmless
// before it is shown in an error or a log line.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hisparse::format {

// True for well-formed UTF-8 (Unicode chapter 3, table 3-7): no overlong forms, no surrogates,
// nothing above U+10FFFF.
bool is_valid_utf8(std::string_view bytes);

// `text` in single quotes for a message: bytes outside printable ASCII become \xNN, and a long text
// is cut with its length told.
std::string in_quotes(std::string_view text);

// InvalidArgument "<file>: <reason>", the form of every refusal in this folder.
absl::Status bad_file(std::string_view file, std::string_view reason);

}  // namespace hisparse::format
