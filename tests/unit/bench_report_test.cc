// What the table and the JSON show.
#include "app/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "nlohmann/json.hpp"

namespace hisparse::app {
namespace {

using testing::HasSubstr;
using testing::Not;

BenchReport small_report() {
  BenchReport report;
  report.version = "1.2.3";
  report.isa_level = "x86-64-v3";
  report.machine.cpu_model = "Some CPU";
  report.model_file = "m.gguf";
  report.dtype = "bf16";
  report.kv_cache_dtype = "f32";
  report.threads = 6;
  report.settings.batch_sizes = {1, 32};
  report.settings.input_lens = {512};
  BenchResult measured{.point = {.batch_size = 1, .input_len = 512}, .figures = {}};
  measured.figures.iterations = 3;
  measured.figures.decode_min_tokens_per_s = 19;
  measured.figures.decode_max_tokens_per_s = 21;
  measured.figures.median = {.ttft_p50_ms = 1.5,
                             .ttft_p99_ms = 2.25,
                             .prefill_tokens_per_s = 12345.678,
                             .total_tokens_per_s = 99.5,
                             .prompt_tokens = 1536,
                             .output_tokens = 384,
                             .merged_tokens = 4,
                             .steady = SteadyFigures{.tokens = 381,
                                                     .decode_tokens_per_s = 20,
                                                     .itl_p50_ms = 50,
                                                     .itl_p90_ms = 60,
                                                     .itl_p99_ms = 70}};
  BenchResult hidden = measured;
  hidden.point.batch_size = 32;
  hidden.figures.median.steady.reset();
  report.results = {measured, hidden};
  return report;
}

std::vector<std::string> table_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("|")) lines.push_back(line);
  }
  return lines;
}

TEST(BenchTable, ColumnsAreAligned) {
  const std::vector<std::string> lines = table_lines(render_table(small_report()));
  ASSERT_EQ(lines.size(), 4u);
  for (const std::string& line : lines) {
    ASSERT_EQ(line.size(), lines[0].size());
    for (std::size_t i = 0; i < line.size(); ++i) EXPECT_EQ(line[i] == '|', lines[0][i] == '|');
  }
  EXPECT_EQ(lines[2],
            "|     1 |     512 |        1.50 |        2.25 |       12345.7 |        20.00 |       "
            "99.50 |      50.00 |      60.00 |      70.00 |");
}

TEST(BenchTable, AMissingSteadyStateIsADash) {
  const std::string hidden = table_lines(render_table(small_report()))[3];
  EXPECT_THAT(hidden, HasSubstr("|            - |       99.50 |          - |"));
}

TEST(BenchTable, PromptsThatWereNotReadHaveNoFigures) {
  BenchReport report = small_report();
  report.settings.inject_kv = true;
  const std::string text = render_table(report);
  EXPECT_THAT(text, HasSubstr("--inject-kv"));
  EXPECT_EQ(
      table_lines(text)[2],
      "|     1 |     512 |           - |           - |             - |        20.00 |           "
      "- |      50.00 |      60.00 |      70.00 |");
}

TEST(BenchTable, TheHeaderSaysWhatWasMeasured) {
  BenchReport report = small_report();
  const std::string text = render_table(report);
  for (const char* words : {"hisparse 1.2.3", "m.gguf", "dtype bf16", "KV cache f32", "threads 6",
                            "x86-64-v3", "Some CPU"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
  EXPECT_THAT(text, Not(HasSubstr("Not complete")));
  report.outcome = BenchOutcome::kInterrupted;
  EXPECT_THAT(render_table(report), HasSubstr("Not complete"));
}

TEST(BenchJson, HoldsEveryFigureUnderItsName) {
  const nlohmann::json json = nlohmann::json::parse(render_json(small_report()));
  EXPECT_EQ(json["format"], 1);
  EXPECT_EQ(json["version"], "1.2.3");
  EXPECT_EQ(json["complete"], true);
  EXPECT_EQ(json["machine"]["cpu_model"], "Some CPU");
  EXPECT_EQ(json["machine"]["isa_level"], "x86-64-v3");
  EXPECT_EQ(json["model"]["file"], "m.gguf");
  EXPECT_EQ(json["model"]["kv_cache_dtype"], "f32");
  EXPECT_EQ(json["settings"]["threads"], 6);
  EXPECT_EQ(json["settings"]["inject_kv"], false);
  EXPECT_EQ(json["settings"]["batch_sizes"], nlohmann::json({1, 32}));
  const nlohmann::json expected = {
      {"batch_size", 1},
      {"input_len", 512},
      {"output_len", 128},
      {"iterations", 3},
      {"prompt_tokens", 1536},
      {"output_tokens", 384},
      {"merged_tokens", 4},
      {"steady_tokens", 381},
      {"ttft_ms", {{"p50", 1.5}, {"p99", 2.25}}},
      {"prefill_tokens_per_s", 12345.678},
      {"total_tokens_per_s", 99.5},
      {"decode_tokens_per_s", {{"median", 20.0}, {"min", 19.0}, {"max", 21.0}}},
      {"itl_ms", {{"p50", 50.0}, {"p90", 60.0}, {"p99", 70.0}}}};
  EXPECT_EQ(json["results"][0], expected);
}

TEST(BenchJson, PromptsThatWereNotReadHaveNoFigures) {
  BenchReport report = small_report();
  report.settings.inject_kv = true;
  const nlohmann::json json = nlohmann::json::parse(render_json(report));
  EXPECT_EQ(json["settings"]["inject_kv"], true);
  for (const char* figure : {"ttft_ms", "prefill_tokens_per_s", "total_tokens_per_s"}) {
    EXPECT_TRUE(json["results"][0].at(figure).is_null()) << figure;
  }
  EXPECT_EQ(json["results"][0]["decode_tokens_per_s"]["median"], 20.0);
}

TEST(BenchJson, AMissingSteadyStateIsNull) {
  const nlohmann::json json = nlohmann::json::parse(render_json(small_report()));
  EXPECT_TRUE(json["results"][1].at("decode_tokens_per_s").is_null());
  EXPECT_TRUE(json["results"][1].at("itl_ms").is_null());
  EXPECT_EQ(json["results"][1]["steady_tokens"], 0);
}

TEST(BenchJson, AnInterruptedRunIsMarkedAndAnyFileNameIsValid) {
  BenchReport report = small_report();
  report.outcome = BenchOutcome::kInterrupted;
  report.model_file = "m\xff.gguf";
  const nlohmann::json json = nlohmann::json::parse(render_json(report));
  EXPECT_EQ(json["complete"], false);
  EXPECT_EQ(json["results"].size(), 2u);
}

}  // namespace
}  // namespace hisparse::app
