// Errors as clients see them: OpenAI's error object and the HTTP status that goes with it
// (reference/api.md section 1.7).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "engine/request.h"

namespace hisparse::api {

// A plain value. `message` may quote bytes of a client; rendering makes them valid UTF-8.
struct ApiError {
  int http_status = 500;
  std::string type = "server_error";
  std::string message;
  std::optional<std::string> param;  // the request field at fault
  std::optional<std::string> code;
  // Extras beside OpenAI's four keys, for programs.
  std::optional<std::int64_t> n_prompt_tokens;
  std::optional<std::int64_t> max_model_len;
  std::optional<int> retry_after_seconds;  // sent as the Retry-After header
};

template <typename T>
using Result = std::variant<T, ApiError>;

// 400: the body is no JSON object in valid UTF-8.
ApiError invalid_json(std::string message);
// 400: field `param` has a wrong type or value.
ApiError invalid_value(std::string_view param, std::string message);
// 400: field `param` asks for something that this server does not do.
ApiError unsupported_parameter(std::string_view param, std::string message);
// 400: see ContextOverflow.
// kAtLeast: the prompt was too long to be worth counting to its end.
enum class PromptCount : std::uint8_t { kExact, kAtLeast };

struct ContextOverflow {
  std::string_view param;  // "messages" or "prompt"
  std::int64_t prompt_tokens = 0;
  PromptCount counted = PromptCount::kExact;
  std::int64_t max_tokens = 0;     // as asked for; 0: not given
  std::int64_t max_model_len = 0;  //
};
ApiError context_length_exceeded(const ContextOverflow& overflow);
// 404.
ApiError model_not_found(std::string_view model);
// Any status in 400..499 that the transport found (route, method, size, media type).
ApiError request_error(int http_status, std::string_view code, std::string message);
// 401.
ApiError invalid_api_key();
// 503 with Retry-After.
ApiError unavailable(std::string_view code, std::string message);
// 500 without internals.
ApiError internal_error();

// What Frontend::submit() answered. `param` is the field that holds the prompt.
ApiError from_submit_status(const absl::Status& status, std::string_view param);
// A finish that is no success (kAbort, kError).
ApiError from_finish(const engine::Finish& finish);

// The body: {"error":{"message","type","param","code",…}}, valid UTF-8 on one line.
std::string render_error(const ApiError& error);

}  // namespace hisparse::api
