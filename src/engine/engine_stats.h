// A snapshot of the engine for metrics: plain values, published once per step.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ledger.h"
#include "engine/request.h"
#include "engine/step_executor.h"
#include "kv/lifecycle_controller.h"

namespace hisparse::engine {

// Cumulative distribution of a duration in seconds or of a count. counts[i] counts values <=
// bounds[i] that are above bounds[i - 1]; the last one counts the rest.
struct Histogram {
  std::vector<double> bounds;
  std::vector<std::int64_t> counts;  // bounds.size() + 1
  double sum = 0.0;

  explicit Histogram(std::vector<double> upper_bounds)
      : bounds(std::move(upper_bounds)), counts(bounds.size() + 1) {}
  void observe(double value);
};

std::vector<double> latency_bounds();        // seconds, for time to first token and whole requests
std::vector<double> token_latency_bounds();  // seconds, between tokens
std::vector<double> step_rows_bounds();      // rows in a step

// Why a request was refused before it was queued. kQueueFull: try again later. kDoesNotFit: it can
// never be served by this configuration. kInvalid: a parameter. kNotReady: draining or failed.
enum class Refusal : std::uint8_t { kQueueFull, kDoesNotFit, kInvalid, kNotReady };
inline constexpr std::size_t kRefusals = 4;

constexpr std::string_view name_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kQueueFull:
      return "queue_full";
    case Refusal::kDoesNotFit:
      return "does_not_fit";
    case Refusal::kInvalid:
      return "invalid";
    case Refusal::kNotReady:
      return "not_ready";
  }
  return "unknown";
}

struct EngineStats {
  std::int64_t running = 0;                             // requests that hold KV pages
  std::int64_t waiting = 0;                             // admitted to the queue, holding none
  std::array<std::int64_t, kFinishReasons> finished{};  // by FinishReason
  std::array<std::int64_t, kRefusals> refused{};        // by Refusal
  std::int64_t preemptions = 0;
  std::int64_t recomputed_tokens = 0;  // KV rows computed again after preemptions
  std::int64_t prompt_tokens = 0;      // of admitted requests
  std::int64_t cached_prompt_tokens = 0;
  std::int64_t generation_tokens = 0;
  std::int64_t steps = 0;
  std::int64_t linear_calls = 0;  // matrix products of rank 0 ...
  std::int64_t linear_rows = 0;   // ... and their rows

  Histogram time_to_first_token{latency_bounds()};
  Histogram inter_token_latency{token_latency_bounds()};
  Histogram request_latency{latency_bounds()};
  Histogram queue_time{latency_bounds()};
  Histogram step_rows{step_rows_bounds()};

  kv::KvStats kv;
  std::int32_t page_tokens = 0;
  std::int64_t page_bytes = 0;  // over all ranks
  Streamed streamed;            // read from disk by steps, over all ranks
  double room_wait = 0.0;       // seconds in which no step could run until pages were copied down
  base::Ledger planned;         // bytes by owner that start-up announced, over all ranks
  base::Ledger allocated;       // bytes by owner that the allocators count, over all ranks
};

}  // namespace hisparse::engine
