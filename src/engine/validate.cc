// Which requests can ever be served.
#include <cmath>

#include "engine/engine_core.h"

namespace hisparse::engine {
namespace {

std::int64_t pages_for(std::int64_t tokens, std::int32_t page_tokens) {
  return (tokens + page_tokens - 1) / page_tokens;
}

absl::Status validate_sampling(const SamplingParams& sampling, std::int32_t vocabulary) {
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0.0f) {
    return absl::InvalidArgumentError("temperature must be a finite number of at least 0");
  }
  if (!(sampling.top_p > 0.0f && sampling.top_p <= 1.0f)) {
    return absl::InvalidArgumentError("top_p must be above 0 and at most 1");
  }
  if (sampling.top_k < 0) return absl::InvalidArgumentError("top_k must be at least 0");
  if (sampling.max_tokens < 1) return absl::InvalidArgumentError("max_tokens must be at least 1");
  for (const std::string& stop : sampling.stop) {
    if (stop.empty()) return absl::InvalidArgumentError("a stop string must not be empty");
  }
  for (base::TokenId token : sampling.stop_token_ids) {
    if (token < 0 || token >= vocabulary) {
      return absl::InvalidArgumentError("a stop token id is outside the vocabulary");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status validate(const Request& request, const CoreConfig& config) {
  if (request.prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens");
  for (base::TokenId token : request.prompt) {
    if (token < 0 || token >= config.vocabulary) {
      return absl::InvalidArgumentError("token " + std::to_string(token) +
                                        " of the prompt is outside the vocabulary");
    }
  }
  if (absl::Status status = validate_sampling(request.sampling, config.vocabulary); !status.ok()) {
    return status;
  }
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t total = prompt + request.sampling.max_tokens;
  const std::string sizes = "the prompt has " + std::to_string(prompt) +
                            " tokens and max_tokens is " +
                            std::to_string(request.sampling.max_tokens);
  if (total > config.max_model_len) {
    return absl::OutOfRangeError("this model's maximum context length is " +
                                 std::to_string(config.max_model_len) + " tokens, but " + sizes);
  }
  // The row of the last token is never needed.
  const std::int64_t pages = pages_for(total - 1, config.kv.page_tokens);
  const std::int64_t slots =
      config.kv.resident_slots == 0
          ? 0
          : std::int64_t{config.kv.resident_slots} + config.kv.host_slots + config.kv.disk_slots;
  if (pages > slots) {
    return absl::OutOfRangeError(
        "the KV cache of this server holds " + std::to_string(slots * config.kv.page_tokens) +
        " tokens, but " + sizes +
        ": shorten the request, or start the server with more --kv-cache-memory-bytes, "
        "--swap-space or --kv-disk-space");
  }
  return absl::OkStatus();
}

}  // namespace hisparse::engine
