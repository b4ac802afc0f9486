#include "api/error.h"

#include <utility>

#include "nlohmann/json.hpp"

namespace hisparse::api {
namespace {

constexpr std::string_view kInvalidRequest = "invalid_request_error";
constexpr int kBadRequest = 400;
constexpr int kUnauthorized = 401;
constexpr int kNotFound = 404;
constexpr int kInternal = 500;
constexpr int kUnavailable = 503;
constexpr int kRetryAfterSeconds = 1;
constexpr std::size_t kMaxQuotedBytes = 256;  // of what a client sent, in a message

// The Debian build of Abseil has its own string_view.
std::string message_of(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

ApiError bad_request(std::string_view code, std::string message) {
  return request_error(kBadRequest, code, std::move(message));
}

}  // namespace

ApiError request_error(int http_status, std::string_view code, std::string message) {
  ApiError error;
  error.http_status = http_status;
  error.type = http_status == kNotFound ? "not_found_error" : kInvalidRequest;
  error.message = std::move(message);
  error.code = code;
  return error;
}

ApiError invalid_json(std::string message) {
  return bad_request("invalid_json", std::move(message));
}

ApiError invalid_value(std::string_view param, std::string message) {
  ApiError error = bad_request("invalid_value", std::move(message));
  error.param = param;
  return error;
}

ApiError unsupported_parameter(std::string_view param, std::string message) {
  ApiError error = bad_request("unsupported_parameter", std::move(message));
  error.param = param;
  return error;
}

ApiError context_length_exceeded(const ContextOverflow& overflow) {
  // Agents match on the words "maximum context length is N tokens".
  std::string message = "This model's maximum context length is " +
                        std::to_string(overflow.max_model_len) + " tokens, but the prompt has " +
                        (overflow.counted == PromptCount::kAtLeast ? "at least " : "") +
                        std::to_string(overflow.prompt_tokens) + " tokens";
  if (overflow.max_tokens > 0) {
    message += " and " + std::to_string(overflow.max_tokens) + " more were asked for";
  }
  ApiError error = bad_request("context_length_exceeded", message + ".");
  error.param = overflow.param;
  error.n_prompt_tokens = overflow.prompt_tokens;
  error.max_model_len = overflow.max_model_len;
  return error;
}

ApiError model_not_found(std::string_view model) {
  ApiError error = request_error(
      kNotFound, "model_not_found",
      "The model '" + std::string(model.substr(0, kMaxQuotedBytes)) + "' does not exist.");
  error.param = "model";
  return error;
}

ApiError invalid_api_key() {
  ApiError error = request_error(kUnauthorized, "invalid_api_key",
                                 "Missing or wrong API key. Send it as 'Authorization: Bearer "
                                 "<key>' or 'X-Api-Key: <key>'.");
  error.type = "authentication_error";
  return error;
}

ApiError unavailable(std::string_view code, std::string message) {
  ApiError error = request_error(kUnavailable, code, std::move(message));
  error.type = "unavailable_error";
  error.retry_after_seconds = kRetryAfterSeconds;
  return error;
}

ApiError internal_error() {
  ApiError error;
  error.http_status = kInternal;
  error.message = "The server had an error while processing the request.";
  error.code = "internal_error";
  return error;
}

ApiError from_submit_status(const absl::Status& status, std::string_view param) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return invalid_value(param, message_of(status));
    case absl::StatusCode::kOutOfRange: {
      ApiError error = bad_request("context_length_exceeded", message_of(status));
      error.param = param;
      return error;
    }
    case absl::StatusCode::kResourceExhausted:
      return unavailable("queue_full", "The request queue is full. Try again later.");
    case absl::StatusCode::kUnavailable:
      return unavailable("unavailable", "The server does not take requests at the moment.");
    default:
      return internal_error();
  }
}

ApiError from_finish(const engine::Finish& finish) {
  if (finish.reason == engine::FinishReason::kAbort) {
    return unavailable("aborted", "The request was aborted before it was complete.");
  }
  if (finish.status.code() == absl::StatusCode::kResourceExhausted) {
    return unavailable("out_of_capacity", "The request no longer fits into the KV cache.");
  }
  if (finish.status.code() == absl::StatusCode::kUnavailable) {
    return unavailable("unavailable", "The server stopped before the request was complete.");
  }
  return internal_error();
}

std::string render_error(const ApiError& error) {
  const auto or_null = [](const std::optional<std::string>& text) {
    return text ? nlohmann::json(*text) : nlohmann::json(nullptr);
  };
  nlohmann::ordered_json body = {{"message", error.message},
                                 {"type", error.type},
                                 {"param", or_null(error.param)},
                                 {"code", or_null(error.code)}};
  if (error.n_prompt_tokens) body["n_prompt_tokens"] = *error.n_prompt_tokens;
  if (error.max_model_len) body["max_model_len"] = *error.max_model_len;
  const nlohmann::ordered_json whole = {{"error", std::move(body)}};
  return whole.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace hisparse::api
