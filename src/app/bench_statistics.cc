#include "app/bench_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace hisparse::app {
namespace {

constexpr double kNanosecondsPerSecond = 1e9;
constexpr double kNanosecondsPerMillisecond = 1e6;
constexpr double kMedian = 50.0;

double milliseconds(base::Nanoseconds duration) {
  return static_cast<double>(duration) / kNanosecondsPerMillisecond;
}

// A clock may give the same time twice.
double per_second(std::int64_t count, base::Nanoseconds duration) {
  return static_cast<double>(count) * kNanosecondsPerSecond /
         static_cast<double>(std::max<base::Nanoseconds>(duration, 1));
}

struct Borders {
  base::Nanoseconds submitted = std::numeric_limits<base::Nanoseconds>::max();
  base::Nanoseconds last_first_token = 0;
  base::Nanoseconds first_last_token = std::numeric_limits<base::Nanoseconds>::max();
  base::Nanoseconds end = 0;
};

Borders find_borders(const RunTimes& times) {
  Borders borders;
  for (const RequestTimes& request : times.requests) {
    HS_CHECK(!request.tokens.empty());
    borders.submitted = std::min(borders.submitted, request.submitted);
    borders.last_first_token = std::max(borders.last_first_token, request.tokens.front());
    borders.first_last_token = std::min(borders.first_last_token, request.tokens.back());
    borders.end = std::max(borders.end, request.tokens.back());
  }
  return borders;
}

std::optional<SteadyFigures> measure_steady_state(const RunTimes& times, const Borders& borders) {
  SteadyFigures steady;
  std::vector<double> gaps;
  for (const RequestTimes& request : times.requests) {
    std::int64_t tokens = 0;
    base::Nanoseconds length = 0;
    for (std::size_t i = 1; i < request.tokens.size(); ++i) {
      const base::Nanoseconds arrival = request.tokens[i];
      if (arrival <= borders.last_first_token || arrival > borders.first_last_token) continue;
      const base::Nanoseconds gap = arrival - request.tokens[i - 1];
      gaps.push_back(milliseconds(gap));
      length += gap;
      ++tokens;
    }
    if (tokens == 0) return std::nullopt;
    steady.tokens += tokens;
    steady.decode_tokens_per_s += per_second(tokens, length);
  }
  steady.itl_p50_ms = percentile(gaps, 50.0);
  steady.itl_p90_ms = percentile(gaps, 90.0);
  steady.itl_p99_ms = percentile(std::move(gaps), 99.0);
  return steady;
}

template <typename Item, typename Figure>
double median_of(std::span<const Item> items, Figure Item::*figure) {
  std::vector<double> values;
  for (const Item& item : items) values.push_back(item.*figure);
  return percentile(std::move(values), kMedian);
}

SteadyFigures summarise_steady_states(std::span<const SteadyFigures> states) {
  SteadyFigures median;
  median.decode_tokens_per_s = median_of(states, &SteadyFigures::decode_tokens_per_s);
  median.itl_p50_ms = median_of(states, &SteadyFigures::itl_p50_ms);
  median.itl_p90_ms = median_of(states, &SteadyFigures::itl_p90_ms);
  median.itl_p99_ms = median_of(states, &SteadyFigures::itl_p99_ms);
  for (const SteadyFigures& state : states) median.tokens += state.tokens;
  return median;
}

}  // namespace

double percentile(std::vector<double> values, double percent) {
  HS_CHECK(!values.empty() && percent > 0.0 && percent <= 100.0);
  // Multiplied first: 0.07 * 100 is more than 7, and its rank would be 8.
  const double rank = std::ceil(percent * static_cast<double>(values.size()) / 100.0);
  const auto at = values.begin() + (static_cast<std::ptrdiff_t>(rank) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

RunFigures measure(const RunTimes& times) {
  HS_CHECK(!times.requests.empty());
  const Borders borders = find_borders(times);
  RunFigures figures;
  std::vector<double> first_tokens;
  for (const RequestTimes& request : times.requests) {
    first_tokens.push_back(milliseconds(request.tokens.front() - request.submitted));
    figures.prompt_tokens += times.input_len;
    figures.output_tokens += static_cast<std::int64_t>(request.tokens.size());
  }
  figures.ttft_p50_ms = percentile(first_tokens, kMedian);
  figures.ttft_p99_ms = percentile(std::move(first_tokens), 99.0);
  figures.prefill_tokens_per_s =
      per_second(figures.prompt_tokens, borders.last_first_token - borders.submitted);
  figures.total_tokens_per_s =
      per_second(figures.prompt_tokens + figures.output_tokens, borders.end - borders.submitted);
  figures.merged_tokens = times.merged_tokens;
  figures.steady = measure_steady_state(times, borders);
  return figures;
}

PointFigures summarise(std::span<const RunFigures> runs) {
  HS_CHECK(!runs.empty());
  PointFigures point;
  point.iterations = static_cast<std::int32_t>(runs.size());
  point.median.ttft_p50_ms = median_of(runs, &RunFigures::ttft_p50_ms);
  point.median.ttft_p99_ms = median_of(runs, &RunFigures::ttft_p99_ms);
  point.median.prefill_tokens_per_s = median_of(runs, &RunFigures::prefill_tokens_per_s);
  point.median.total_tokens_per_s = median_of(runs, &RunFigures::total_tokens_per_s);
  std::vector<SteadyFigures> states;
  for (const RunFigures& run : runs) {
    point.median.prompt_tokens += run.prompt_tokens;
    point.median.output_tokens += run.output_tokens;
    point.median.merged_tokens += run.merged_tokens;
    if (run.steady) states.push_back(*run.steady);
  }
  if (states.empty()) return point;
  point.median.steady = summarise_steady_states(states);
  const auto [slowest, fastest] = std::minmax_element(
      states.begin(), states.end(), [](const SteadyFigures& a, const SteadyFigures& b) {
        return a.decode_tokens_per_s < b.decode_tokens_per_s;
      });
  point.decode_min_tokens_per_s = slowest->decode_tokens_per_s;
  point.decode_max_tokens_per_s = fastest->decode_tokens_per_s;
  return point;
}

}  // namespace hisparse::app
