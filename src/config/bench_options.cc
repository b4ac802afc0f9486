#include <algorithm>

#include "config/option_groups.h"
#include "config/option_helpers.h"

namespace hisparse::config {
namespace {

constexpr std::int32_t kMaxIterations = 1000;

// "1,8,32", or the option again for each value. One argument at a time: a list must not swallow the
// model's name behind it.
template <typename T>
CLI::Option* add_list(CLI::App& command, const std::string& name, std::vector<T>& target,
                      const std::string& help) {
  return add_option(command, name, target, help)->delimiter(',')->allow_extra_args(false);
}

// What fits beside the output in the model length that was asked for.
std::string find_length_conflict(const BenchSettings& bench) {
  const std::int64_t limit = bench.engine.max_model_len;
  if (limit == 0) return "";
  if (bench.output_len >= limit) {
    return "--output-len " + std::to_string(bench.output_len) +
           " leaves no room for a prompt within --max-model-len " + std::to_string(limit);
  }
  for (const std::int64_t input : bench.input_lens) {
    if (input + bench.output_len <= limit) continue;
    return "--input-lens " + std::to_string(input) + " and --output-len " +
           std::to_string(bench.output_len) + " are more than --max-model-len " +
           std::to_string(limit) + ": with this output a prompt may have " +
           std::to_string(limit - bench.output_len) + " tokens";
  }
  return "";
}

}  // namespace

void add_bench_options(CLI::App& command, BenchSettings& bench) {
  add_list(command, "batch-sizes", bench.batch_sizes, "Requests at the same time, such as 1,8,32")
      ->check(CLI::Range(1, kMaxSequences));
  add_list(command, "input-lens", bench.input_lens,
           "Prompt tokens of a request, such as 512,7500 (" +
               std::to_string(kDefaultBenchInputLen) + " where the model allows it)")
      ->check(CLI::Range(std::int64_t{1}, kMaxModelLength))
      ->default_str("");
  add_option(command, "output-len", bench.output_len,
             "Tokens to generate for each request; 1: prefill alone")
      ->check(CLI::Range(std::int64_t{1}, kMaxModelLength));
  add_option(command, "num-iters", bench.num_iters,
             "Measurements of each point, of which the median counts")
      ->check(CLI::Range(1, kMaxIterations));
  command
      .add_flag("--inject-kv", bench.inject_kv,
                "Fill the KV rows of prompts with random values instead of reading the prompts: "
                "decoding alone is measured, at any length")
      ->envname(environment_name("inject-kv"));
  add_option(command, "output-json", bench.output_json,
             "File for all figures and settings; -: standard output, instead of the table");
  add_option(command, "seed", bench.seed, "Of the random prompts");
}

std::string find_conflict(const BenchSettings& bench) {
  if (bench.batch_sizes.empty()) return "--batch-sizes must not be empty";
  if (std::string conflict = find_engine_conflict(bench.engine, "the largest of --batch-sizes");
      !conflict.empty()) {
    return conflict;
  }
  if (bench.inject_kv && bench.output_len == 1) {
    return "--inject-kv measures decoding alone, which --output-len 1 leaves out: raise it";
  }
  return find_length_conflict(bench);
}

}  // namespace hisparse::config
