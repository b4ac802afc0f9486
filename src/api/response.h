// Engine output -> bodies of answers (reference/api.md sections 1.3 and 1.4).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/error.h"
#include "api/prepare.h"
#include "api/request_body.h"
#include "engine/request.h"

namespace hisparse::api {

// What every part of one answer repeats.
struct ResponseHead {
  Endpoint endpoint = Endpoint::kChat;
  std::string id;
  std::int64_t created = 0;  // Unix seconds
  std::string model;
  std::string system_fingerprint;
};

// "chatcmpl-<request id>" or "cmpl-<request id>".
std::string response_id(Endpoint endpoint, std::string_view request_id);

// The whole answer of a request that finished with kStop or kLength; `output` holds all its text.
std::string render_response(const ResponseHead& head, const engine::OutputChunk& output);

// Server-sent events of one answer. One per stream; any one thread at a time.
class StreamRenderer final {
 public:
  StreamRenderer(const ResponseHead& head, StreamUsage usage);

  // What goes out before any output: the chunk with the role (chat), nothing (completions).
  std::string begin() const;
  // The events for a piece of output: text if there is any, and with a finish the finish chunk, the
  // usage chunk and [DONE], or one error event. Empty when there is nothing to say.
  std::string render(const engine::OutputChunk& chunk) const;

 private:
  std::string event(std::string_view choices, std::string_view usage) const;
  std::string text_choice(std::string_view text) const;
  std::string finish_choice(const engine::Finish& finish) const;

  Endpoint endpoint_;
  StreamUsage usage_;
  std::string prefix_;  // `data: {"id":…,` up to the choices: the same bytes in each event
};

// An error after the headers of a stream have gone out.
std::string render_error_event(const ApiError& error);
// An SSE comment: keeps proxies and clients awake during a long prefill; clients ignore it.
inline constexpr std::string_view kHeartbeat = ": ping\n\n";

std::string render_model_list(const ServedModel& model);
std::string render_model(const ServedModel& model);

}  // namespace hisparse::api
