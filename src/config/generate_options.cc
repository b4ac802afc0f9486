#include "config/option_groups.h"
#include "config/option_helpers.h"

namespace hisparse::config {
namespace {

constexpr float kMinTopP = 1e-6f;
constexpr float kMaxTemperature = 100.0f;

}  // namespace

void add_generate_options(CLI::App& command, GenerateSettings& generate) {
  add_option(command, "prompt", generate.prompt, "What to answer or to continue");
  command.add_flag("--raw", generate.raw,
                   "Continue the prompt as it is, without the chat template");
  add_option(command, "max-tokens", generate.max_tokens, "Most tokens to generate")
      ->check(CLI::Range(std::int64_t{1}, kMaxModelLength));
  add_option(command, "temperature", generate.temperature, "0 is greedy")
      ->check(CLI::Range(0.0f, kMaxTemperature));
  add_option(command, "top-p", generate.top_p, "Probability mass to sample from")
      ->check(CLI::Range(kMinTopP, 1.0f));
  add_option(command, "top-k", generate.top_k, "Most likely tokens to sample from; 0: all")
      ->check(CLI::NonNegativeNumber);
  add_option(command, "seed", generate.seed, "Of the random numbers");
  add_option(command, "stop", generate.stop, "Texts that end the output");
}

std::string find_conflict(const GenerateSettings& generate) {
  if (std::string conflict = find_engine_conflict(generate.engine, "one request");
      !conflict.empty()) {
    return conflict;
  }
  return generate.prompt.empty() ? "--prompt is required" : "";
}

}  // namespace hisparse::config
