// Greedy and random choice of the next token.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/float_formats.h"
#include "base/philox.h"
#include "device/cpu/cpu_memory.h"
#include "device/cpu/cpu_operators.h"

namespace hisparse::device::cpu {
namespace {

// The tokens of one row that may be drawn, in the order in which the draw walks over them.
struct Candidates {
  const float* logits;
  const float* weights;  // exp((logit - max) / temperature), by token
  base::TokenId* ids;    // [count]
  std::int64_t count;

  // Larger logit first, ties to the lowest id; NaN last.
  bool before(base::TokenId a, base::TokenId b) const {
    const float x = std::isnan(logits[a]) ? -std::numeric_limits<float>::infinity() : logits[a];
    const float y = std::isnan(logits[b]) ? -std::numeric_limits<float>::infinity() : logits[b];
    return x != y ? x > y : a < b;
  }
  void take_all() {
    for (std::int64_t i = 0; i < count; ++i) ids[i] = static_cast<base::TokenId>(i);
  }
  double mass() const {
    double sum = 0.0;
    for (std::int64_t i = 0; i < count; ++i) sum += weights[ids[i]];
    return sum;
  }
};

// Tokens by how far their logit is below the largest, in steps of an eighth of an octave: with it
// the few that can be drawn are found without sorting the vocabulary.
class Histogram final {
 public:
  Histogram(const Candidates& all, float max) : logits_(all.logits), max_(max) {
    for (std::int64_t i = 0; i < all.count; ++i) {
      const std::size_t bucket = bucket_of(i);
      ++counts_[bucket];
      masses_[bucket] += all.weights[i];
    }
  }

  // Buckets in front that hold at least `count` tokens.
  std::size_t buckets_for_count(std::int64_t count) const {
    std::size_t bucket = 0;
    for (std::int64_t sum = 0; bucket < kBuckets && sum < count; ++bucket) sum += counts_[bucket];
    return bucket;
  }
  // Buckets in front whose mass is at least `mass`, with a margin for the order of the sums.
  std::size_t buckets_for_mass(double mass) const {
    constexpr double kMargin = 1.0 + 1e-9;
    std::size_t bucket = 0;
    for (double sum = 0.0; bucket < kBuckets && sum < mass * kMargin; ++bucket) {
      sum += masses_[bucket];
    }
    return bucket;
  }
  void collect(std::size_t buckets, Candidates& candidates) const {
    const std::int64_t vocabulary = std::exchange(candidates.count, 0);
    for (std::int64_t i = 0; i < vocabulary; ++i) {
      if (bucket_of(i) < buckets) {
        candidates.ids[candidates.count++] = static_cast<base::TokenId>(i);
      }
    }
  }

 private:
  static constexpr int kBucketBits = 20;  // of a float, that a bucket does not look at
  static constexpr std::size_t kBuckets = (std::size_t{1} << (31 - kBucketBits));

  // max - logit is never negative; a NaN comes last.
  std::size_t bucket_of(std::int64_t i) const {
    return (base::float_to_bits(max_ - logits_[i]) & 0x7fffffffu) >> kBucketBits;
  }

  const float* logits_;
  const float max_;
  std::array<std::int64_t, kBuckets> counts_{};
  std::array<double, kBuckets> masses_{};
};

// Puts the `keep` first candidates, in order, to the front, and drops the others.
void keep_front(Candidates& candidates, std::int64_t keep) {
  const auto before = [&](base::TokenId a, base::TokenId b) { return candidates.before(a, b); };
  base::TokenId* ids = candidates.ids;
  if (keep < candidates.count) std::nth_element(ids, ids + keep, ids + candidates.count, before);
  candidates.count = std::min(keep, candidates.count);
  std::sort(ids, ids + candidates.count, before);
}

// Cuts sorted candidates to the smallest prefix whose mass reaches `target`.
void cut_to_mass(Candidates& candidates, double target) {
  double mass = 0.0;
  for (std::int64_t taken = 0; taken < candidates.count; ++taken) {
    mass += candidates.weights[candidates.ids[taken]];
    if (mass >= target) {
      candidates.count = taken + 1;
      return;
    }
  }
}

// From the whole vocabulary to what top_k and top_p leave.
void choose_candidates(Candidates& candidates, const SampleRow& row, float max) {
  const bool top_k = row.top_k > 0 && row.top_k < candidates.count;
  if (!top_k && row.top_p >= 1.0f) return candidates.take_all();
  const Histogram histogram(candidates, max);
  if (top_k) {
    histogram.collect(histogram.buckets_for_count(row.top_k), candidates);
    keep_front(candidates, row.top_k);
    if (row.top_p < 1.0f) cut_to_mass(candidates, candidates.mass() * row.top_p);
    return;
  }
  candidates.take_all();
  const double target = candidates.mass() * row.top_p;
  histogram.collect(histogram.buckets_for_mass(target), candidates);
  keep_front(candidates, candidates.count);
  cut_to_mass(candidates, target);
}

base::TokenId draw(const Candidates& candidates, double uniform) {
  const double target = uniform * candidates.mass();
  double mass = 0.0;
  base::TokenId last = candidates.ids[0];
  for (std::int64_t i = 0; i < candidates.count; ++i) {
    const double weight = candidates.weights[candidates.ids[i]];
    if (weight <= 0.0) continue;  // also what rounding leaves over may not choose it
    last = candidates.ids[i];
    mass += weight;
    if (target < mass) break;
  }
  return last;
}

base::TokenId sample_row(const OperatorContext& context, const float* logits,
                         std::int64_t vocabulary, const SampleRow& row) {
  const std::int64_t best = context.kernels.index_of_max(logits, vocabulary);
  // An infinite maximum has no softmax; a temperature that is not positive means greedy.
  if (!(row.temperature > 0.0f) || !std::isfinite(logits[best])) {
    return static_cast<base::TokenId>(best);
  }
  thread_local std::vector<float> weight_memory;
  thread_local std::vector<base::TokenId> id_memory;
  float* weights = scratch(weight_memory, vocabulary);
  // The largest float, where 1 / temperature would be infinite, keeps 0 * inf out of the maximum.
  const float inverse = std::min(1.0f / row.temperature, std::numeric_limits<float>::max());
  context.kernels.softmax_weights(logits, weights, vocabulary, logits[best], inverse);
  Candidates candidates = {.logits = logits,
                           .weights = weights,
                           .ids = scratch(id_memory, vocabulary),
                           .count = vocabulary};
  choose_candidates(candidates, row, logits[best]);
  return draw(candidates, base::philox_uniform(row.seed, row.counter));
}

}  // namespace

void run_sample(const OperatorContext& context, const SampleParams& params) {
  const float* logits = pointer_to(params.logits);
  const SampleRow* rows = pointer_to(params.rows_params);
  base::TokenId* tokens = pointer_to(params.tokens);
  for_chunks(context.pool, params.rows, 1, [&](std::int64_t row, std::int64_t) {
    tokens[row] =
        sample_row(context, logits + row * params.vocabulary, params.vocabulary, rows[row]);
  });
}

}  // namespace hisparse::device::cpu
