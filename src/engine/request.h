// What a front end asks for and what it gets. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace hisparse::engine {

struct SamplingParams {
  float temperature = 1.0f;     // >= 0 and finite; 0 is greedy
  float top_p = 1.0f;           // (0, 1]
  std::int32_t top_k = 0;       // >= 0; 0 is off
  std::uint64_t seed = 0;       // key of the request's own random stream
  std::int32_t max_tokens = 0;  // > 0; prompt + max_tokens must fit the model length
  bool ignore_eos = false;
  std::vector<std::string> stop;  // non-empty strings
  std::vector<base::TokenId> stop_token_ids;
};

struct Request {
  std::string id;                     // for the log; need not be unique
  std::vector<base::TokenId> prompt;  // at least one, all in the vocabulary
  SamplingParams sampling;
  std::string cache_salt;  // requests share cached prefixes only under the same salt
};

// kStop: an end token, a stop token or a stop string. kLength: max_tokens. kAbort: cancelled.
// kError: see status.
enum class FinishReason : std::uint8_t { kStop, kLength, kAbort, kError };
inline constexpr std::size_t kFinishReasons = 4;

constexpr std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

// What an answer promises (README, "Exactness"). kExact: every key is read, and greedy tokens equal
// those of a run whose pages are all resident.
enum class Exactness : std::uint8_t { kExact };

constexpr std::string_view name_of(Exactness exactness) {
  switch (exactness) {
    case Exactness::kExact:
      return "exact";
  }
  return "unknown";
}

struct Usage {
  std::int32_t prompt_tokens = 0;
  std::int32_t completion_tokens = 0;
  std::int32_t cached_tokens =
      0;  // of the prompt: found in the prefix cache at the first admission
};

struct Finish {
  FinishReason reason = FinishReason::kStop;
  std::optional<std::string> stop_string;  // the stop string that matched
  std::optional<base::TokenId>
      stop_token;       // the stop token id that matched (not the model's own end token)
  absl::Status status;  // for kError
};

// A piece of a request's output: valid UTF-8 text, usage so far, and the end when it is there.
struct OutputChunk {
  std::string text;
  Usage usage;
  std::optional<Finish> finish;
};

}  // namespace hisparse::engine
