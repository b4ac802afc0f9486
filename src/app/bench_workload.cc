#include "app/bench_workload.h"

#include <algorithm>

#include "base/check.h"
#include "base/philox.h"

namespace hisparse::app {
namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t pages_of_request(std::int64_t input_len, std::int64_t output_len,
                              const BenchLimits& limits) {
  // The KV row of the last token is never needed.
  return divide_up(input_len + output_len - 1, limits.page_tokens);
}

absl::Status check_length(std::int64_t input_len, std::int64_t output_len,
                          const BenchLimits& limits) {
  if (input_len + output_len <= limits.max_model_len) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--input-lens " + std::to_string(input_len) + " and --output-len " +
      std::to_string(output_len) + " are more than the model length of " +
      std::to_string(limits.max_model_len) + " tokens: with this output a prompt may have " +
      std::to_string(limits.max_model_len - output_len) + " tokens");
}

absl::Status check_pages(const BenchPoint& point, std::int64_t output_len,
                         const BenchLimits& limits) {
  const std::int64_t each = pages_of_request(point.input_len, output_len, limits);
  const std::int64_t all = each * point.batch_size;
  if (all <= limits.pages) return absl::OkStatus();
  return absl::InvalidArgumentError(
      describe(point) + ": with --output-len " + std::to_string(output_len) + " it needs " +
      std::to_string(all) + " pages of the KV cache, which has " + std::to_string(limits.pages) +
      ": use --kv-cache-memory-bytes " + std::to_string(all * limits.page_bytes) +
      " or more, or batches of at most " + std::to_string(limits.pages / each));
}

}  // namespace

std::string describe(const BenchPoint& point) {
  return "batch " + std::to_string(point.batch_size) + ", context " +
         std::to_string(point.input_len);
}

absl::StatusOr<std::vector<BenchPoint>> plan_points(const config::BenchSettings& settings,
                                                    const BenchLimits& limits) {
  const std::int64_t output_len = settings.output_len;
  const std::int64_t longest = limits.max_model_len - output_len;
  if (longest < 1) {
    return absl::InvalidArgumentError("--output-len " + std::to_string(output_len) +
                                      " leaves no room for a prompt within the model length of " +
                                      std::to_string(limits.max_model_len) + " tokens");
  }
  std::vector<std::int64_t> lengths = settings.input_lens;
  if (lengths.empty()) lengths = {std::min(config::kDefaultBenchInputLen, longest)};
  std::vector<BenchPoint> points;
  for (const std::int64_t length : lengths) {
    if (absl::Status status = check_length(length, output_len, limits); !status.ok()) return status;
    for (const std::int32_t batch : settings.batch_sizes) {
      points.push_back({.batch_size = batch, .input_len = length});
      if (absl::Status status = check_pages(points.back(), output_len, limits); !status.ok()) {
        return status;
      }
    }
  }
  return points;
}

bool lacks_steady_state(const BenchPoint& point, std::int64_t output_len,
                        std::int64_t tokens_in_a_step) {
  const std::int64_t first = divide_up(point.input_len, tokens_in_a_step);
  const std::int64_t last = divide_up(point.input_len * point.batch_size, tokens_in_a_step);
  return first + output_len - 1 <= last;
}

absl::StatusOr<std::vector<base::TokenId>> plain_tokens(const text::Tokenizer& tokenizer,
                                                        std::int32_t vocabulary) {
  const std::vector<base::TokenId>& ends = tokenizer.end_tokens();
  std::vector<base::TokenId> plain;
  for (base::TokenId token = 0; token < std::min(vocabulary, tokenizer.vocabulary_size());
       ++token) {
    const bool special = tokenizer.token_bytes(token).empty() || token == tokenizer.bos() ||
                         token == tokenizer.eos() ||
                         std::find(ends.begin(), ends.end(), token) != ends.end();
    if (!special) plain.push_back(token);
  }
  if (plain.empty()) {
    return absl::FailedPreconditionError("the vocabulary has no tokens that stand for text");
  }
  return plain;
}

std::vector<base::TokenId> random_prompt(std::span<const base::TokenId> choices, std::uint64_t seed,
                                         std::uint32_t index, std::int64_t length) {
  constexpr int kWordBits = 32;
  HS_CHECK(!choices.empty() && length < (std::int64_t{1} << kWordBits));
  std::vector<base::TokenId> tokens;
  tokens.reserve(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < length; ++i) {
    const std::uint64_t counter =
        (std::uint64_t{index} << kWordBits) | static_cast<std::uint64_t>(i);
    const std::uint64_t word = base::philox4x32(seed, counter)[0];
    tokens.push_back(choices[(word * choices.size()) >> kWordBits]);
  }
  return tokens;
}

}  // namespace hisparse::app
