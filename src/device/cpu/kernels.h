// The hot loops of the CPU operators, compiled once per instruction-set level and reached through
// a table. Raw pointers and plain structs only: a kernel file must not emit an inline function or
// template that other files share, since the linker could then pick the copy with the wider
// instructions for everybody (checked by the kernel_symbols test).
#pragma once

#include <cstdint>

namespace hisparse::device::cpu {

// A weight is stored in panels of 32 output columns; inside a panel k is the slower index:
// panel[k][32]. The last panel is padded with zeros.
inline constexpr int kPanelColumns = 32;

// Attention takes keys in segments of this many tokens from position 0 (ARCHITECTURE section 2a).
inline constexpr int kSegmentTokens = 256;

// Queries that one pass over the keys of a segment serves.
inline constexpr int kMaxQueries = 8;

enum class Element : std::uint8_t { kF32, kBF16 };

// out[rows, columns] = in[rows, k] * panel^T.
struct PanelProduct {
  const void* panel = nullptr;  // [k, 32] of `element`
  const float* in = nullptr;    // [rows, k]
  float* out = nullptr;         // [rows, out_stride], at the panel's first column
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t out_stride = 0;
  int columns = 0;  // 1 to 32 that exist
  Element element = Element::kF32;
};

// The result of attention over some keys, not yet divided by the sum: [max, sum, values[head_dim]].
inline constexpr int kPartialHeader = 2;

// Attention of up to kMaxQueries queries over one segment of one KV head.
struct SegmentAttention {
  const void* const* k_rows = nullptr;     // [counts max] rows [head_dim] of `element`
  const void* const* v_rows = nullptr;     // [counts max]
  const float* queries[kMaxQueries] = {};  // [head_dim] each
  float* partials[kMaxQueries] = {};       // [kPartialHeader + head_dim] each; written if count > 0
  int counts[kMaxQueries] = {};            // tokens 0 ... counts[i] that query i sees; 0: none
  int query_count = 0;
  int head_dim = 0;
  float scale = 0.0f;
  Element element = Element::kF32;
};

struct KernelTable {
  void (*multiply_panel)(const PanelProduct& product);
  void (*round_to_bf16)(const float* in, float* out, std::int64_t count);
  // One row.
  void (*rms_norm)(const float* in, const float* weight, float* out, std::int64_t width,
                   float epsilon);
  void (*silu_mul)(const float* gate, const float* up, float* out, std::int64_t count);
  // out[i] = exp((in[i] - max) * inverse_temperature), 0 for NaN.
  void (*softmax_weights)(const float* in, float* out, std::int64_t count, float max,
                          float inverse_temperature);
  void (*attend_segment)(const SegmentAttention& segment);
  // state = state (the segments so far) merged with `partial` (the next segment).
  void (*merge_partial)(float* state, const float* partial, int head_dim);
  void (*finish_attention)(const float* state, float* out, int head_dim);
};

const KernelTable& kernels_v2();  // -march=x86-64-v2
const KernelTable& kernels_v3();  // -march=x86-64-v3: AVX2 and FMA

}  // namespace hisparse::device::cpu
