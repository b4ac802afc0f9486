// How the attention of one query is spread over pages: a sample for placement, beside the attention
// itself. Plain code: it runs once in many steps, for one layer.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/float_formats.h"
#include "device/cpu/cpu_operators.h"
#include "device/cpu/kv_view.h"

namespace hisparse::device::cpu {
namespace {

// The scores of one query in one page: their largest, and the sum of exp(score - max).
struct Part {
  float max = 0.0f;
  float sum = 0.0f;
};

// Four lanes, as every machine has them.
using F4 = float __attribute__((vector_size(16)));
constexpr std::int32_t kLanes = 4;
constexpr std::int32_t kStep = 4 * kLanes;

F4 product(const float* a, const float* b) {
  F4 left, right;
  std::memcpy(&left, a, sizeof(left));
  std::memcpy(&right, b, sizeof(right));
  return left * right;
}

float dot(const float* a, const float* b, std::int32_t count) {
  F4 sums[4] = {};
  std::int32_t at = 0;
  for (; at + kStep <= count; at += kStep) {
    for (int i = 0; i < 4; ++i) sums[i] += product(a + at + i * kLanes, b + at + i * kLanes);
  }
  const F4 lanes = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float sum = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  for (; at < count; ++at) sum += a[at] * b[at];
  return sum;
}

class PageMass final {
 public:
  PageMass(const OperatorContext& context, const PageMassParams& params)
      : context_(context),
        params_(params),
        view_(params.pages),
        heads_per_kv_(params.heads / params.pages.kv_heads) {
    HS_CHECK(params.heads % params.pages.kv_heads == 0);
    HS_CHECK(params.position >= 0);
  }

  void run() const {
    thread_local std::vector<Part> memory;
    Part* parts = scratch(memory, params_.heads * params_.count);  // [heads, count]
    const std::int64_t page_values =
        std::int64_t{params_.pages.page_tokens} * params_.heads * params_.pages.head_dim;
    for_chunks(context_.pool, params_.count, rows_per_chunk(page_values),
               [this, parts](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) look_at(i, parts);
               });
    float* masses = pointer_to(params_.masses);
    std::fill_n(masses, params_.count, 0.0f);
    for (std::int32_t head = 0; head < params_.heads; ++head) {
      spread(parts + head * params_.count, masses);
    }
    // The rounding of the heads' shares adds up, and a share above 1 is none.
    for (std::int64_t i = 0; i < params_.count; ++i) masses[i] = std::min(masses[i], 1.0f);
  }

 private:
  // Page i of the list, for all heads.
  void look_at(std::int64_t i, Part* parts) const {
    const std::int64_t page = pointer_to(params_.page_indices)[i];
    const std::int64_t first = page * params_.pages.page_tokens;
    const std::int64_t tokens =
        std::min<std::int64_t>(params_.pages.page_tokens, params_.position + 1 - first);
    HS_CHECK(page >= 0 && tokens > 0);
    thread_local std::vector<float> scores_memory, row_memory;
    float* scores = scratch(scores_memory, heads_per_kv_ * params_.pages.page_tokens);
    float* row = scratch(row_memory, params_.pages.head_dim);
    for (std::int32_t kv_head = 0; kv_head < params_.pages.kv_heads; ++kv_head) {
      const std::byte* stored =
          view_.k_row(params_.sequence_slot, first) + kv_head * view_.head_bytes();
      for (std::int64_t t = 0; t < tokens; ++t, stored += view_.row_bytes()) {
        const float* key = expanded(stored, row);
        for (std::int64_t h = 0; h < heads_per_kv_; ++h) {
          const float* q =
              pointer_to(params_.q) + (kv_head * heads_per_kv_ + h) * params_.pages.head_dim;
          scores[h * tokens + t] = dot(q, key, params_.pages.head_dim) * params_.scale;
        }
      }
      for (std::int64_t h = 0; h < heads_per_kv_; ++h) {
        parts[(kv_head * heads_per_kv_ + h) * params_.count + i] =
            sum_up(scores + h * tokens, tokens);
      }
    }
  }

  const float* expanded(const std::byte* stored, float* row) const {
    if (params_.pages.dtype == base::DType::kF32) return reinterpret_cast<const float*>(stored);
    const auto* values = reinterpret_cast<const base::bf16*>(stored);
    for (std::int32_t d = 0; d < params_.pages.head_dim; ++d) row[d] = base::to_float(values[d]);
    return row;
  }

  // Overwrites the scores.
  Part sum_up(float* scores, std::int64_t count) const {
    Part part = {.max = *std::max_element(scores, scores + count), .sum = 0.0f};
    context_.kernels.softmax_weights(scores, scores, count, part.max, 1.0f);
    for (std::int64_t i = 0; i < count; ++i) part.sum += scores[i];
    return part;
  }

  // Adds this head's share of each page.
  void spread(const Part* parts, float* masses) const {
    float max = parts[0].max;
    for (std::int64_t i = 1; i < params_.count; ++i) max = std::max(max, parts[i].max);
    float total = 0.0f;
    for (std::int64_t i = 0; i < params_.count; ++i) {
      total += parts[i].sum * std::exp(parts[i].max - max);
    }
    const float share = 1.0f / (total * static_cast<float>(params_.heads));
    for (std::int64_t i = 0; i < params_.count; ++i) {
      masses[i] += parts[i].sum * std::exp(parts[i].max - max) * share;
    }
  }

  const OperatorContext& context_;
  const PageMassParams& params_;
  const KvView view_;
  const std::int64_t heads_per_kv_;
};

}  // namespace

void run_page_mass(const OperatorContext& context, const PageMassParams& params) {
  if (params.count == 0) return;
  PageMass(context, params).run();
}

}  // namespace hisparse::device::cpu
