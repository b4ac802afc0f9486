#include "api/prepare.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace hisparse::api {
namespace {

constexpr std::int64_t kCompletionDefaultTokens = 16;  // OpenAI's

using Tokens = std::vector<base::TokenId>;

std::string message_of(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

// An error of template or tokenizer is the request's fault, unless it is none of the expected ones.
ApiError prompt_error(const absl::Status& status, std::string_view param) {
  if (status.code() == absl::StatusCode::kInvalidArgument ||
      status.code() == absl::StatusCode::kResourceExhausted) {
    return invalid_value(param, message_of(status));
  }
  return internal_error();
}

// A prompt that is too long by its bytes alone is refused before the work of tokenising it.
std::optional<ApiError> refuse_by_bytes(std::string_view text, Endpoint endpoint,
                                        const ServedModel& model) {
  const auto least = static_cast<std::int64_t>(text.size() / model.tokenizer->longest_token());
  if (least < model.max_model_len) return std::nullopt;
  return context_length_exceeded({.param = prompt_field(endpoint),
                                  .prompt_tokens = least,
                                  .counted = PromptCount::kAtLeast,
                                  .max_tokens = 0,
                                  .max_model_len = model.max_model_len});
}

Result<Tokens> chat_tokens(const RequestBody& body, const ServedModel& model) {
  if (model.chat_template == nullptr) {
    return unsupported_parameter("messages",
                                 "This model has no chat template: use /v1/completions.");
  }
  const auto rendered =
      model.chat_template->render(body.messages, text::render_options(*model.tokenizer));
  if (!rendered.ok()) return prompt_error(rendered.status(), "messages");
  if (auto error = refuse_by_bytes(rendered->text, body.endpoint, model)) return *std::move(error);
  auto tokens = model.tokenizer->encode(rendered->text, rendered->user_spans);
  if (!tokens.ok()) return prompt_error(tokens.status(), "messages");
  return *std::move(tokens);
}

Result<Tokens> completion_tokens(const RequestBody& body, const ServedModel& model) {
  if (const Tokens* ids = std::get_if<Tokens>(&body.prompt)) return *ids;
  // The author of a raw prompt writes special tokens on purpose: no user spans.
  const std::string& text = std::get<std::string>(body.prompt);
  if (auto error = refuse_by_bytes(text, body.endpoint, model)) return *std::move(error);
  auto encoded = model.tokenizer->encode(text);
  if (!encoded.ok()) return prompt_error(encoded.status(), "prompt");
  Tokens tokens = *std::move(encoded);
  const auto bos = model.tokenizer->bos();
  if (model.tokenizer->adds_bos() && bos) tokens.insert(tokens.begin(), *bos);
  return tokens;
}

bool in_vocabulary(const Tokens& tokens, const text::Tokenizer& tokenizer) {
  const base::TokenId size = tokenizer.vocabulary_size();
  return std::ranges::all_of(tokens, [size](base::TokenId id) { return id >= 0 && id < size; });
}

// How many tokens the answer may have: what was asked for, or what there is room for.
Result<std::int32_t> token_limit(const RequestBody& body, const ServedModel& model,
                                 std::int64_t prompt_tokens) {
  const std::int64_t room = model.max_model_len - prompt_tokens;
  const std::int64_t asked = body.max_tokens.value_or(0);
  if (room < 1 || asked > room) {
    return context_length_exceeded({.param = prompt_field(body.endpoint),
                                    .prompt_tokens = prompt_tokens,
                                    .counted = PromptCount::kExact,
                                    .max_tokens = asked,
                                    .max_model_len = model.max_model_len});
  }
  if (asked > 0) return static_cast<std::int32_t>(asked);
  // Without a wish: what the context and the KV cache have room for, so that the request can run.
  if (body.endpoint == Endpoint::kChat) {
    const std::int64_t cache_room =
        std::max<std::int64_t>(model.kv_cache_tokens + 1 - prompt_tokens, 1);
    return static_cast<std::int32_t>(std::min(room, cache_room));
  }
  return static_cast<std::int32_t>(std::min(room, kCompletionDefaultTokens));
}

}  // namespace

std::string_view prompt_field(Endpoint endpoint) {
  return endpoint == Endpoint::kChat ? "messages" : "prompt";
}

Result<engine::Request> prepare(RequestBody body, const ServedModel& model,
                                const PrepareOptions& options) {
  // An empty name is what clients with an empty model box send: not given.
  if (body.model && !body.model->empty() && *body.model != model.name)
    return model_not_found(*body.model);
  const std::string_view param = prompt_field(body.endpoint);
  auto tokens =
      body.endpoint == Endpoint::kChat ? chat_tokens(body, model) : completion_tokens(body, model);
  if (const auto* error = std::get_if<ApiError>(&tokens)) return *error;
  Tokens& prompt = std::get<Tokens>(tokens);
  if (prompt.empty()) return invalid_value(param, "The prompt has no tokens.");
  if (!in_vocabulary(prompt, *model.tokenizer)) {
    return invalid_value(param, "The prompt holds token ids outside the vocabulary.");
  }
  if (!in_vocabulary(body.sampling.stop_token_ids, *model.tokenizer)) {
    return invalid_value("stop_token_ids", "'stop_token_ids' holds ids outside the vocabulary.");
  }
  const auto limit = token_limit(body, model, static_cast<std::int64_t>(prompt.size()));
  if (const auto* error = std::get_if<ApiError>(&limit)) return *error;

  engine::Request request;
  request.id = options.request_id;
  request.prompt = std::move(prompt);
  request.sampling = std::move(body.sampling);
  request.sampling.max_tokens = std::get<std::int32_t>(limit);
  request.sampling.seed = body.seed ? *body.seed : options.entropy();
  request.cache_salt = std::move(body.cache_salt);
  return request;
}

}  // namespace hisparse::api
