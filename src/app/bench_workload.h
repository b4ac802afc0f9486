// What `hisparse bench` runs: the points, whether they fit, and their prompts. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "config/server_config.h"
#include "text/tokenizer.h"

namespace hisparse::app {

// One line of the table.
struct BenchPoint {
  std::int32_t batch_size = 0;
  std::int64_t input_len = 0;  // prompt tokens of each request
};

// "batch 8, context 512".
std::string describe(const BenchPoint& point);

// What the model and the plan allow.
struct BenchLimits {
  std::int64_t max_model_len = 0;
  std::int32_t page_tokens = 1;
  std::int32_t pages = 0;       // of the KV cache, over all tiers
  std::int64_t page_bytes = 0;  // over all ranks
};

// All points, context by context, each with rising place in --batch-sizes. InvalidArgument says
// what would fit: a request longer than the model length, or a batch whose KV rows do not all fit
// in the cache (its requests would wait for each other instead of running together).
absl::StatusOr<std::vector<BenchPoint>> plan_points(const config::BenchSettings& settings,
                                                    const BenchLimits& limits);

// Whether the first request of a point ends before the last one has read its prompt, so that the
// point has no steady state (see SteadyFigures): prompts are read at most `tokens_in_a_step` tokens
// at a time. The answer is an estimate for a warning.
bool lacks_steady_state(const BenchPoint& point, std::int64_t output_len,
                        std::int64_t tokens_in_a_step);

// The ids below `vocabulary` (of the weights) that stand for text: no control tokens, no begin and
// end tokens, nothing that the tokenizer does not know. FailedPrecondition when there are none.
absl::StatusOr<std::vector<base::TokenId>> plain_tokens(const text::Tokenizer& tokenizer,
                                                        std::int32_t vocabulary);

// `length` tokens drawn from `choices`; the prompt number `index` of the stream of this seed.
// Different indices give independent prompts.
std::vector<base::TokenId> random_prompt(std::span<const base::TokenId> choices, std::uint64_t seed,
                                         std::uint32_t index, std::int64_t length);

}  // namespace hisparse::app
