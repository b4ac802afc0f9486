// Greedy and random choice of the next token.
#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.h"
#include "device/cpu/cpu_memory.h"
#include "device/cpu/cpu_operators.h"

namespace hisparse::device::cpu {
namespace {

// NaN counts as -inf, so a broken row still yields a token.
std::int64_t index_of_max(const float* logits, std::int64_t count) {
  std::int64_t best = 0;
  float max = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < count; ++i) {
    if (logits[i] > max) {
      max = logits[i];
      best = i;
    }
  }
  return best;
}

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
  double mass() const {
    double sum = 0.0;
    for (std::int64_t i = 0; i < count; ++i) sum += weights[ids[i]];
    return sum;
  }
};

// Puts the `keep` first candidates, in order, to the front, given that `sorted` are there already.
void sort_front(const Candidates& candidates, std::int64_t sorted, std::int64_t keep) {
  const auto before = [&](base::TokenId a, base::TokenId b) { return candidates.before(a, b); };
  base::TokenId* ids = candidates.ids;
  if (keep < candidates.count) {
    std::nth_element(ids + sorted, ids + keep, ids + candidates.count, before);
  }
  std::sort(ids + sorted, ids + keep, before);
}

// Cuts to the smallest prefix whose mass reaches top_p of the whole.
void cut_to_mass(Candidates& candidates, float top_p) {
  constexpr std::int64_t kFirstFront = 256;
  constexpr std::int64_t kGrowth = 4;
  const double target = candidates.mass() * static_cast<double>(top_p);
  double mass = 0.0;
  std::int64_t sorted = 0;
  std::int64_t front = kFirstFront;
  for (std::int64_t taken = 0; taken < candidates.count; ++taken) {
    if (taken == sorted) {
      front = std::min(candidates.count, sorted == 0 ? kFirstFront : sorted * kGrowth);
      sort_front(candidates, sorted, front);
      sorted = front;
    }
    mass += candidates.weights[candidates.ids[taken]];
    if (mass >= target) {
      candidates.count = taken + 1;
      return;
    }
  }
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
  const std::int64_t best = index_of_max(logits, vocabulary);
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
  for (std::int64_t i = 0; i < vocabulary; ++i) {
    candidates.ids[i] = static_cast<base::TokenId>(i);
  }
  if (row.top_k > 0 && row.top_k < vocabulary) {
    sort_front(candidates, 0, row.top_k);
    candidates.count = row.top_k;
  }
  if (row.top_p < 1.0f) cut_to_mass(candidates, row.top_p);
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
