// The two forms of a prompt: `messages` and `prompt`. Only for the .cc files of api/.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/field_reader.h"
#include "base/ids.h"
#include "text/chat_template.h"

namespace hisparse::api {

// Both record what is wrong in `fields`. `developer` becomes `system`, which templates know.
std::vector<text::ChatMessage> read_messages(FieldReader& fields);
std::variant<std::string, std::vector<base::TokenId>> read_prompt(FieldReader& fields);

// A JSON integer that could be a token id: 0 to 2^31 - 1.
std::optional<base::TokenId> token_id_of(simdjson::dom::element value);

}  // namespace hisparse::api
