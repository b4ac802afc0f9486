// RequestBody -> engine::Request: template, tokens and the limits that depend on the model.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "api/error.h"
#include "api/request_body.h"
#include "engine/request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hisparse::api {

// What the API needs to know of the served model. The pointees outlive it and are immutable.
struct ServedModel {
  std::string name;                                   // the id in /v1/models and in answers
  const text::Tokenizer* tokenizer = nullptr;         // never null
  const text::ChatTemplate* chat_template = nullptr;  // null: chat is refused
  std::int64_t max_model_len = 0;                     // tokens of prompt and answer
  // Rows that the KV cache holds: the bound of an answer that names none. The last token needs no
  // row.
  std::int64_t kv_cache_tokens = std::numeric_limits<std::int64_t>::max() - 1;
  std::int64_t created = 0;  // Unix seconds
  std::string system_fingerprint;
};

struct PrepareOptions {
  std::string request_id;
  std::function<std::uint64_t()> entropy;  // the seed of a request that names none
};

// Any thread; takes the time of tokenising. Errors: unknown model, no or failing template, prompt
// over the model length, ids outside the vocabulary.
Result<engine::Request> prepare(RequestBody body, const ServedModel& model,
                                const PrepareOptions& options);

// "messages" or "prompt": the field that errors about the prompt name.
std::string_view prompt_field(Endpoint endpoint);

}  // namespace hisparse::api
