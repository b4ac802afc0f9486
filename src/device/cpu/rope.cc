// Rotary positions, and the store of new K and V rows into their pages.
#include <cmath>
#include <cstring>

#include "base/float_formats.h"
#include "device/cpu/cpu_operators.h"
#include "device/cpu/kv_view.h"

namespace hisparse::device::cpu {
namespace {

// x[i], x[i + pairs] turned by angle i; `out` may be `in`.
void rotate(const float* in, const float* cos_sin, std::int64_t pairs, float* out) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float cosine = cos_sin[2 * i];
    const float sine = cos_sin[2 * i + 1];
    const float low = in[i];
    const float high = in[i + pairs];
    out[i] = low * cosine - high * sine;
    out[i + pairs] = high * cosine + low * sine;
  }
}

void store_values(const float* in, std::int64_t count, base::DType dtype, std::byte* out) {
  if (dtype == base::DType::kF32) {
    std::memcpy(out, in, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  auto* to = reinterpret_cast<base::bf16*>(out);
  for (std::int64_t i = 0; i < count; ++i) to[i] = base::to_bf16(in[i]);
}

void rope_and_store_row(const RopeAndStoreParams& params, const KvView& view, std::int64_t row) {
  const std::int64_t head_dim = params.pages.head_dim;
  const std::int64_t kv_heads = params.pages.kv_heads;
  const float* cos_sin = pointer_to(params.cos_sin) + row * params.rotary_pairs * 2;
  float* q = pointer_to(params.q) + row * params.heads * head_dim;
  for (std::int64_t h = 0; h < params.heads; ++h) {
    rotate(q + h * head_dim, cos_sin, params.rotary_pairs, q + h * head_dim);
  }
  const std::int32_t slot = pointer_to(params.placement.sequence_slots)[row];
  const std::int64_t position = pointer_to(params.placement.positions)[row];
  const float* k = pointer_to(params.k) + row * kv_heads * head_dim;
  const float* v = pointer_to(params.v) + row * kv_heads * head_dim;
  thread_local std::vector<float> memory;
  float* rotated = scratch(memory, kv_heads * head_dim);
  std::memcpy(rotated, k, static_cast<std::size_t>(kv_heads * head_dim) * sizeof(float));
  for (std::int64_t h = 0; h < kv_heads; ++h) {
    rotate(k + h * head_dim, cos_sin, params.rotary_pairs, rotated + h * head_dim);
  }
  store_values(rotated, kv_heads * head_dim, params.pages.dtype, view.k_row(slot, position));
  store_values(v, kv_heads * head_dim, params.pages.dtype, view.v_row(slot, position));
}

}  // namespace

void run_rope_angles(const OperatorContext& context, const RopeAnglesParams& params) {
  const std::int64_t* positions = pointer_to(params.positions);
  const double* frequencies = pointer_to(params.inverse_frequencies);
  float* out = pointer_to(params.cos_sin);
  // A sine and a cosine in double cost about as much as this many plain values.
  constexpr std::int64_t kCost = 32;
  for_chunks(context.pool, params.rows, rows_per_chunk(params.rotary_pairs * kCost),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t r = begin; r < end; ++r) {
                 for (std::int64_t i = 0; i < params.rotary_pairs; ++i) {
                   const double angle = static_cast<double>(positions[r]) * frequencies[i];
                   float* pair = out + (r * params.rotary_pairs + i) * 2;
                   pair[0] = static_cast<float>(std::cos(angle));
                   pair[1] = static_cast<float>(std::sin(angle));
                 }
               }
             });
}

void run_rope_and_store(const OperatorContext& context, const RopeAndStoreParams& params) {
  HS_CHECK(2 * params.rotary_pairs <= params.pages.head_dim);
  const KvView view(params.pages);
  const std::int64_t width =
      std::int64_t{params.pages.head_dim} * (params.heads + 2 * params.pages.kv_heads);
  for_chunks(context.pool, params.placement.rows, rows_per_chunk(width),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t r = begin; r < end; ++r) rope_and_store_row(params, view, r);
             });
}

}  // namespace hisparse::device::cpu
