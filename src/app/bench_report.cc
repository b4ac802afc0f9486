#include "app/bench_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "nlohmann/json.hpp"

namespace hisparse::app {
namespace {

using Json = nlohmann::ordered_json;

// Raise it when a key changes its meaning or goes.
constexpr int kJsonVersion = 1;
constexpr int kIndent = 2;
constexpr std::size_t kColumns = 10;
using Row = std::array<std::string, kColumns>;

const Row kTitles = {"batch",        "context",     "TTFT p50 ms", "TTFT p99 ms", "prefill tok/s",
                     "decode tok/s", "total tok/s", "ITL p50 ms",  "ITL p90 ms",  "ITL p99 ms"};

// Enough digits for microseconds in milliseconds, and no noise behind large values.
std::string format_number(double value) {
  constexpr double kLarge = 100.0;
  char text[64];
  std::snprintf(text, sizeof(text), value < kLarge ? "%.2f" : "%.1f", value);
  return text;
}

// `settings`: whether prompts are read. Where they are not, what includes their time says nothing.
Row make_row(const BenchResult& result, const config::BenchSettings& settings) {
  const RunFigures& figures = result.figures.median;
  const auto with_prompts = [&settings](double figure) {
    return settings.inject_kv ? std::string("-") : format_number(figure);
  };
  const auto steady = [&figures](double SteadyFigures::*figure) {
    return figures.steady ? format_number((*figures.steady).*figure) : std::string("-");
  };
  return {std::to_string(result.point.batch_size),    std::to_string(result.point.input_len),
          with_prompts(figures.ttft_p50_ms),          with_prompts(figures.ttft_p99_ms),
          with_prompts(figures.prefill_tokens_per_s), steady(&SteadyFigures::decode_tokens_per_s),
          with_prompts(figures.total_tokens_per_s),   steady(&SteadyFigures::itl_p50_ms),
          steady(&SteadyFigures::itl_p90_ms),         steady(&SteadyFigures::itl_p99_ms)};
}

// "| right-aligned | cells |"
std::string render_row(const Row& row, const std::array<std::size_t, kColumns>& widths) {
  std::string line = "|";
  for (std::size_t column = 0; column < kColumns; ++column) {
    line += " " + std::string(widths[column] - row[column].size(), ' ') + row[column] + " |";
  }
  return line + "\n";
}

std::string render_header(const BenchReport& report) {
  const config::BenchSettings& settings = report.settings;
  std::string text =
      "hisparse " + report.version + ", " + report.model_file + " (" + report.architecture + ", " +
      format_number(static_cast<double>(report.parameters) / 1e6) + " M parameters)\n";
  text += "dtype " + report.dtype + ", KV cache " + report.kv_cache_dtype + ", threads " +
          std::to_string(report.threads) + ", tensor parallel size " +
          std::to_string(settings.engine.tensor_parallel_size) + ", " + report.isa_level +
          (report.machine.cpu_model.empty() ? "" : ", " + report.machine.cpu_model) + "\n";
  text += "output tokens of a request " + std::to_string(settings.output_len) +
          ", medians over iterations " + std::to_string(settings.num_iters) + "\n";
  if (settings.inject_kv) {
    text += "prompts were not read, their KV rows are random (--inject-kv): decoding alone\n";
  }
  if (report.outcome == BenchOutcome::kInterrupted) {
    text += "Not complete: what was measured before the end\n";
  }
  return text;
}

Json machine_json(const BenchReport& report) {
  const MachineInfo& machine = report.machine;
  return {{"cpu_model", machine.cpu_model},
          {"logical_cpus", machine.logical_cpus},
          {"physical_cores", machine.physical_cores},
          {"usable_cpus", machine.usable_cpus},
          {"isa_level", report.isa_level}};
}

Json model_json(const BenchReport& report) {
  return {{"file", report.model_file},
          {"digest", report.model_digest},
          {"architecture", report.architecture},
          {"parameters", report.parameters},
          {"dtype", report.dtype},
          {"kv_cache_dtype", report.kv_cache_dtype}};
}

Json settings_json(const BenchReport& report) {
  const config::BenchSettings& settings = report.settings;
  const config::EngineSettings& engine = settings.engine;
  return {{"batch_sizes", settings.batch_sizes},
          {"input_lens", settings.input_lens},
          {"output_len", settings.output_len},
          {"num_iters", settings.num_iters},
          {"seed", settings.seed},
          {"inject_kv", settings.inject_kv},
          {"threads", report.threads},
          {"tensor_parallel_size", engine.tensor_parallel_size},
          {"max_model_len", report.max_model_len},
          {"max_num_batched_tokens", engine.max_num_batched_tokens},
          {"block_size", engine.block_size},
          {"kv_cache_tokens", report.kv_cache_tokens},
          {"enable_prefix_caching", engine.enable_prefix_caching}};
}

Json result_json(const BenchResult& result, const config::BenchSettings& settings) {
  const PointFigures& figures = result.figures;
  const RunFigures& median = figures.median;
  Json json = {{"batch_size", result.point.batch_size},
               {"input_len", result.point.input_len},
               {"output_len", settings.output_len},
               {"iterations", figures.iterations},
               {"prompt_tokens", median.prompt_tokens},
               {"output_tokens", median.output_tokens},
               {"merged_tokens", median.merged_tokens},
               {"steady_tokens", median.steady ? median.steady->tokens : 0},
               {"ttft_ms", nullptr},
               {"prefill_tokens_per_s", nullptr},
               {"total_tokens_per_s", nullptr},
               {"decode_tokens_per_s", nullptr},
               {"itl_ms", nullptr}};
  if (!settings.inject_kv) {
    json["ttft_ms"] = {{"p50", median.ttft_p50_ms}, {"p99", median.ttft_p99_ms}};
    json["prefill_tokens_per_s"] = median.prefill_tokens_per_s;
    json["total_tokens_per_s"] = median.total_tokens_per_s;
  }
  if (median.steady) {
    json["decode_tokens_per_s"] = {{"median", median.steady->decode_tokens_per_s},
                                   {"min", figures.decode_min_tokens_per_s},
                                   {"max", figures.decode_max_tokens_per_s}};
    json["itl_ms"] = {{"p50", median.steady->itl_p50_ms},
                      {"p90", median.steady->itl_p90_ms},
                      {"p99", median.steady->itl_p99_ms}};
  }
  return json;
}

}  // namespace

std::string render_table(const BenchReport& report) {
  std::vector<Row> rows = {kTitles};
  for (const BenchResult& result : report.results)
    rows.push_back(make_row(result, report.settings));
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (std::size_t column = 0; column < kColumns; ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  // "---:" aligns a column to the right in Markdown.
  Row rule;
  for (std::size_t column = 0; column < kColumns; ++column) {
    rule[column] = std::string(widths[column] - 1, '-') + ":";
  }
  rows.insert(rows.begin() + 1, rule);
  std::string text = render_header(report) + "\n";
  for (const Row& row : rows) text += render_row(row, widths);
  return text;
}

std::string render_json(const BenchReport& report) {
  Json results = Json::array();
  for (const BenchResult& result : report.results) {
    results.push_back(result_json(result, report.settings));
  }
  const Json json = {{"format", kJsonVersion},
                     {"program", "hisparse bench"},
                     {"version", report.version},
                     {"started", report.started},
                     {"complete", report.outcome == BenchOutcome::kComplete},
                     {"machine", machine_json(report)},
                     {"model", model_json(report)},
                     {"settings", settings_json(report)},
                     {"results", std::move(results)}};
  // A file name may be any bytes.
  return json.dump(kIndent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hisparse::app
