// From the arrival times of tokens to the figures of `hisparse bench`. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"

namespace hisparse::app {

// One request of a run.
struct RequestTimes {
  base::Nanoseconds submitted = 0;
  std::vector<base::Nanoseconds> tokens;  // arrival of each token, in order; never decreasing
};

// One run: a batch of requests that were submitted together.
struct RunTimes {
  std::int64_t input_len = 0;  // prompt tokens of each request
  std::vector<RequestTimes> requests;
  // Tokens whose own arrival was not seen, because they came while an earlier one of the same
  // request was still to be taken (see run_batch).
  std::int64_t merged_tokens = 0;
};

// The steady state of a run: the time in which every request decodes and none reads its prompt. It
// begins when the last request gets its first token and ends when the first request gets its last
// one.
struct SteadyFigures {
  std::int64_t tokens = 0;  // that arrived in it; each is the end of one gap
  // A request's rate is its gaps over their length; this is the sum over the requests. So each
  // request is measured over whole steps of its own, and the borders, which lie within a step,
  // neither add nor take a token.
  double decode_tokens_per_s = 0.0;
  // Inter-token latency: over the gaps that end in the steady state, of all requests together. A
  // gap is the time from one token of a request to its next.
  double itl_p50_ms = 0.0;
  double itl_p90_ms = 0.0;
  double itl_p99_ms = 0.0;
};

struct RunFigures {
  double ttft_p50_ms = 0.0;  // time to first token, from a request's own submit, over the requests
  double ttft_p99_ms = 0.0;
  double prefill_tokens_per_s = 0.0;  // all prompt tokens, first submit to last first token
  double total_tokens_per_s = 0.0;    // prompt and output tokens, first submit to last token
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t merged_tokens = 0;
  // Nothing when some request has no token in the steady state: the first one ended before, or
  // right after, the last one began.
  std::optional<SteadyFigures> steady;
};

// The median of each figure over repeated runs; token counts are sums over the runs.
struct PointFigures {
  std::int32_t iterations = 0;
  RunFigures median;  // of the steady state: over the runs that have one
  double decode_min_tokens_per_s = 0.0;
  double decode_max_tokens_per_s = 0.0;
};

// Nearest rank: the smallest value that at least `percent` % of the values do not exceed; always
// one of the values. `values` is not empty, `percent` in (0, 100].
double percentile(std::vector<double> values, double percent);

// Every request has at least one token.
RunFigures measure(const RunTimes& times);

// At least one run.
PointFigures summarise(std::span<const RunFigures> runs);

}  // namespace hisparse::app
