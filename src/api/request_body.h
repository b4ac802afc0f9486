// Bodies of POST /v1/chat/completions and POST /v1/completions -> a typed, validated value
// (reference/api.md section 1.2). Unknown fields are ignored; null means "not given".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/error.h"
#include "base/ids.h"
#include "engine/request.h"
#include "text/chat_template.h"

namespace hisparse::api {

enum class Endpoint : std::uint8_t { kChat, kCompletion };
enum class Delivery : std::uint8_t { kWhole, kStream };
enum class StreamUsage : std::uint8_t { kOmit, kInclude };

inline constexpr std::size_t kMaxStopStrings = 64;
inline constexpr std::size_t kMaxStopStringBytes = 1024;
inline constexpr std::size_t kMaxStopTokenIds = 1024;
inline constexpr std::size_t kMaxCacheSaltCharacters = 1024;
inline constexpr std::size_t kMaxBodyFields = 1024;
inline constexpr std::size_t kMaxJsonDepth = 64;

// What the client asked for, checked as far as it can be without the model.
struct RequestBody {
  Endpoint endpoint = Endpoint::kChat;
  std::optional<std::string> model;
  std::vector<text::ChatMessage> messages;                       // kChat: at least one
  std::variant<std::string, std::vector<base::TokenId>> prompt;  // kCompletion: not empty
  // temperature, top_p, top_k, ignore_eos, stop and stop_token_ids are final but for the vocabulary
  // check; seed and max_tokens are below because they may be absent.
  engine::SamplingParams sampling;
  std::optional<std::uint64_t> seed;       // the bits of the client's int64
  std::optional<std::int64_t> max_tokens;  // > 0
  std::string cache_salt;
  Delivery delivery = Delivery::kWhole;
  StreamUsage stream_usage = StreamUsage::kOmit;
};

// Any bytes are safe. Any thread.
Result<RequestBody> parse_request_body(Endpoint endpoint, std::string_view json);

}  // namespace hisparse::api
