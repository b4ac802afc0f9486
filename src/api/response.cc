#include "api/response.h"

#include "nlohmann/json.hpp"

namespace hisparse::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kEnd = "\n\n";
constexpr std::string_view kDone = "data: [DONE]\n\n";

// Client bytes may be anywhere: the replace handler makes the result valid UTF-8 in every case.
std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json usage_json(const engine::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json stop_reason(const engine::Finish& finish) {
  if (finish.stop_string) return *finish.stop_string;
  if (finish.stop_token) return *finish.stop_token;
  return nullptr;
}

Json head_json(const ResponseHead& head, std::string_view object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", head.system_fingerprint}};
}

bool is_success(const engine::Finish& finish) {
  return finish.reason == engine::FinishReason::kStop ||
         finish.reason == engine::FinishReason::kLength;
}

Json model_json(const ServedModel& model) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "hisparse"},
          {"root", model.name},
          {"parent", nullptr},
          {"max_model_len", model.max_model_len}};
}

}  // namespace

std::string response_id(Endpoint endpoint, std::string_view request_id) {
  return (endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-") + std::string(request_id);
}

std::string render_response(const ResponseHead& head, const engine::OutputChunk& output) {
  const bool chat = head.endpoint == Endpoint::kChat;
  const engine::Finish finish = output.finish.value_or(engine::Finish{});
  Json choice = {{"index", 0}};
  if (chat) {
    choice["message"] = {{"role", "assistant"}, {"content", output.text}, {"refusal", nullptr}};
  } else {
    choice["text"] = output.text;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = engine::name_of(finish.reason);
  choice["stop_reason"] = stop_reason(finish);

  Json body = head_json(head, chat ? "chat.completion" : "text_completion");
  body["choices"] = Json::array({std::move(choice)});
  body["usage"] = usage_json(output.usage);
  return dump(body);
}

StreamRenderer::StreamRenderer(const ResponseHead& head, StreamUsage usage)
    : endpoint_(head.endpoint), usage_(usage) {
  const bool chat = endpoint_ == Endpoint::kChat;
  prefix_ = "data: " + dump(head_json(head, chat ? "chat.completion.chunk" : "text_completion"));
  prefix_.back() = ',';  // instead of the closing brace
}

std::string StreamRenderer::event(std::string_view choices, std::string_view usage) const {
  std::string out = prefix_;
  out.append("\"choices\":[").append(choices).append("]");
  if (usage_ == StreamUsage::kInclude) out.append(",\"usage\":").append(usage);
  return out.append("}").append(kEnd);
}

std::string StreamRenderer::begin() const {
  if (endpoint_ == Endpoint::kCompletion) return {};
  return event(
      R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})",
      "null");
}

std::string StreamRenderer::text_choice(std::string_view text) const {
  const std::string quoted = dump(Json(text));
  const std::string value = endpoint_ == Endpoint::kChat ? "\"delta\":{\"content\":" + quoted + "}"
                                                         : "\"text\":" + quoted;
  return "{\"index\":0," + value + ",\"logprobs\":null,\"finish_reason\":null}";
}

std::string StreamRenderer::finish_choice(const engine::Finish& finish) const {
  Json choice = {{"index", 0}};
  if (endpoint_ == Endpoint::kChat) {
    choice["delta"] = Json::object();
  } else {
    choice["text"] = "";
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = engine::name_of(finish.reason);
  choice["stop_reason"] = stop_reason(finish);
  return dump(choice);
}

std::string StreamRenderer::render(const engine::OutputChunk& chunk) const {
  std::string out;
  if (!chunk.text.empty()) out += event(text_choice(chunk.text), "null");
  if (!chunk.finish) return out;
  if (!is_success(*chunk.finish)) return out + render_error_event(from_finish(*chunk.finish));
  out += event(finish_choice(*chunk.finish), "null");
  if (usage_ == StreamUsage::kInclude) out += event("", dump(usage_json(chunk.usage)));
  return out.append(kDone);
}

std::string render_error_event(const ApiError& error) {
  return "data: " + render_error(error) + std::string(kEnd);
}

std::string render_model_list(const ServedModel& model) {
  return dump({{"object", "list"}, {"data", Json::array({model_json(model)})}});
}

std::string render_model(const ServedModel& model) { return dump(model_json(model)); }

}  // namespace hisparse::api
