// The figures of a run against sums done by hand.
#include "app/bench_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace hisparse::app {
namespace {

constexpr base::Nanoseconds kMs = 1'000'000;

// Times in milliseconds.
RequestTimes request(base::Nanoseconds submitted, std::vector<base::Nanoseconds> tokens) {
  for (base::Nanoseconds& time : tokens) time *= kMs;
  return {.submitted = submitted * kMs, .tokens = std::move(tokens)};
}

RunTimes run_of(std::vector<RequestTimes> requests, std::int64_t input_len = 10) {
  return {.input_len = input_len, .requests = std::move(requests), .merged_tokens = 0};
}

TEST(BenchPercentile, IsTheNearestRank) {
  EXPECT_EQ(percentile({15, 20, 35, 40, 50}, 30), 20);
  EXPECT_EQ(percentile({50, 15, 40, 20, 35}, 40), 20);
  EXPECT_EQ(percentile({50, 15, 40, 20, 35}, 50), 35);
  EXPECT_EQ(percentile({50, 15, 40, 20, 35}, 100), 50);
  EXPECT_EQ(percentile({4, 3, 2, 1}, 50), 2);
  EXPECT_EQ(percentile({7}, 1), 7);
  EXPECT_EQ(percentile({7}, 99), 7);
}

TEST(BenchPercentile, OfWholeHundredthsIsNotPushedUpByRounding) {
  std::vector<double> values(100);
  std::iota(values.begin(), values.end(), 1.0);
  for (const double percent : {1.0, 7.0, 28.0, 29.0, 55.0, 57.0, 58.0, 90.0, 99.0}) {
    EXPECT_EQ(percentile(values, percent), percent);
  }
  EXPECT_EQ(percentile(values, 98.5), 99);
}

TEST(BenchMeasure, OneRequestIsPurePrefillAndDecode) {
  const RunFigures figures = measure(run_of({request(100, {300, 310, 330, 340, 350})}, 50));
  EXPECT_DOUBLE_EQ(figures.ttft_p50_ms, 200);
  EXPECT_DOUBLE_EQ(figures.ttft_p99_ms, 200);
  EXPECT_DOUBLE_EQ(figures.prefill_tokens_per_s, 250);      // 50 in 200 ms
  EXPECT_DOUBLE_EQ(figures.total_tokens_per_s, 55 / 0.25);  // 50 + 5 in 250 ms
  EXPECT_EQ(figures.prompt_tokens, 50);
  EXPECT_EQ(figures.output_tokens, 5);
  ASSERT_TRUE(figures.steady);
  EXPECT_EQ(figures.steady->tokens, 4);
  EXPECT_DOUBLE_EQ(figures.steady->decode_tokens_per_s, 80);  // 4 in 50 ms
  EXPECT_DOUBLE_EQ(figures.steady->itl_p50_ms, 10);
  EXPECT_DOUBLE_EQ(figures.steady->itl_p90_ms, 20);
}

TEST(BenchMeasure, TimeToFirstTokenCountsFromTheRequestsOwnSubmit) {
  const RunFigures figures =
      measure(run_of({request(0, {100, 200}), request(50, {120, 200}), request(60, {200, 300})}));
  EXPECT_DOUBLE_EQ(figures.ttft_p50_ms, 100);
  EXPECT_DOUBLE_EQ(figures.ttft_p99_ms, 140);
  EXPECT_DOUBLE_EQ(figures.prefill_tokens_per_s, 150);  // 30 from 0 to 200 ms
  EXPECT_DOUBLE_EQ(figures.total_tokens_per_s, 120);    // 36 from 0 to 300 ms
}

// Three steps of 100 ms while the second prompt is read, then steps of 10 ms.
TEST(BenchMeasure, TokensBesideThePrefillOfAnotherRequestAreNotSteady) {
  const RunFigures figures = measure(run_of({
      request(0, {100, 200, 300, 310, 320, 330}),
      request(0, {300, 310, 320, 330, 340, 350}),
  }));
  ASSERT_TRUE(figures.steady);
  EXPECT_EQ(figures.steady->tokens, 6);
  EXPECT_DOUBLE_EQ(figures.steady->itl_p99_ms, 10);
  EXPECT_DOUBLE_EQ(figures.steady->decode_tokens_per_s, 200);
}

TEST(BenchMeasure, TokensAfterTheEndOfTheFirstRequestAreNotSteady) {
  const RunFigures figures = measure(run_of({
      request(0, {10, 20, 30, 40}),
      request(0, {10, 20, 30, 40, 41, 42, 43, 44}),
  }));
  ASSERT_TRUE(figures.steady);
  EXPECT_EQ(figures.steady->tokens, 6);
  EXPECT_DOUBLE_EQ(figures.steady->itl_p50_ms, 10);
}

// The tokens of one step come one after another: the borders lie within a step.
TEST(BenchMeasure, TheRateHasNoBiasFromTheBordersOfTheSteadyState) {
  std::vector<RequestTimes> requests(4);
  constexpr int kSteps = 5;
  for (int step = 1; step <= kSteps; ++step) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].tokens.push_back(step * 20 * kMs + static_cast<base::Nanoseconds>(i) * 1000);
    }
  }
  const RunFigures figures = measure(run_of(requests));
  ASSERT_TRUE(figures.steady);
  EXPECT_EQ(figures.steady->tokens, 4 + 3 * 3);
  EXPECT_DOUBLE_EQ(figures.steady->decode_tokens_per_s, 200);  // 4 in each 20 ms
  EXPECT_DOUBLE_EQ(figures.steady->itl_p50_ms, 20);
  EXPECT_DOUBLE_EQ(figures.steady->itl_p99_ms, 20);
}

TEST(BenchMeasure, WithoutATimeInWhichAllDecodeThereIsNoSteadyState) {
  EXPECT_FALSE(measure(run_of({request(0, {10, 20, 30}), request(0, {30, 40, 50})})).steady);
  EXPECT_FALSE(measure(run_of({request(0, {10, 20, 30}), request(0, {90, 95, 99})})).steady);
  EXPECT_FALSE(measure(run_of({request(0, {10})})).steady);
}

TEST(BenchMeasure, TokensAtTheSameTimeDoNotDivideByZero) {
  const RunFigures figures = measure(run_of({request(5, {5, 5, 5})}));
  EXPECT_FALSE(figures.steady);  // all at the time of the first
  EXPECT_GT(figures.prefill_tokens_per_s, 0);
}

RunFigures figures_with(double decode, double itl) {
  RunFigures figures;
  figures.ttft_p50_ms = 1000 - decode;
  figures.prefill_tokens_per_s = 2 * decode;
  figures.prompt_tokens = 7;
  figures.output_tokens = 3;
  figures.merged_tokens = 1;
  figures.steady = SteadyFigures{.tokens = 2,
                                 .decode_tokens_per_s = decode,
                                 .itl_p50_ms = itl,
                                 .itl_p90_ms = 2 * itl,
                                 .itl_p99_ms = 3 * itl};
  return figures;
}

TEST(BenchSummary, EachFigureHasItsOwnMedianAndCountsAreSums) {
  const std::vector<RunFigures> runs = {figures_with(30, 1), figures_with(10, 3),
                                        figures_with(20, 2)};
  const PointFigures point = summarise(runs);
  EXPECT_EQ(point.iterations, 3);
  EXPECT_EQ(point.median.prompt_tokens, 21);
  EXPECT_EQ(point.median.output_tokens, 9);
  EXPECT_EQ(point.median.merged_tokens, 3);
  EXPECT_EQ(point.median.ttft_p50_ms, 980);
  EXPECT_EQ(point.median.prefill_tokens_per_s, 40);
  ASSERT_TRUE(point.median.steady);
  EXPECT_EQ(point.median.steady->tokens, 6);
  EXPECT_EQ(point.median.steady->decode_tokens_per_s, 20);
  EXPECT_EQ(point.median.steady->itl_p50_ms, 2);
  EXPECT_EQ(point.median.steady->itl_p90_ms, 4);
  EXPECT_EQ(point.median.steady->itl_p99_ms, 6);
  EXPECT_EQ(point.decode_min_tokens_per_s, 10);
  EXPECT_EQ(point.decode_max_tokens_per_s, 30);
}

TEST(BenchSummary, RunsWithoutASteadyStateDoNotCountInIts) {
  std::vector<RunFigures> runs = {figures_with(30, 1), figures_with(10, 3)};
  runs.back().steady.reset();
  EXPECT_EQ(summarise(runs).median.steady->decode_tokens_per_s, 30);
  runs.front().steady.reset();
  EXPECT_FALSE(summarise(runs).median.steady);
}

}  // namespace
}  // namespace hisparse::app
