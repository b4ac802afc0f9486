// Fields of OpenAI's and vLLM's requests that ask for what this server does not do. They are
// refused by name unless they carry their default: silence would be a wrong answer. Only for api/.
#pragma once

#include "api/field_reader.h"
#include "api/request_body.h"

namespace hisparse::api {

// Records unsupported_parameter for the first such field.
void refuse_unsupported_fields(FieldReader& fields, Endpoint endpoint);

}  // namespace hisparse::api
