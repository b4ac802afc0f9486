// The hot loops of the CPU operators, compiled once per instruction-set level and reached through
// a table. Raw pointers and plain structs only: a kernel file must not emit an inline function or
// template that other files share, since the linker could then pick the copy with the wider
// instructions for everybody (checked by the kernel_symbols test).
#pragma once

#include <cstdint>

#include "device/attention_segment.h"

namespace hisparse::device::cpu {

// A weight is stored in panels of 32 output columns, the last one padded with zeros. Inside a panel
// k is the slower index; `panel_bytes` gives the size:
//   kF32      [k][32] f32
//   kBF16     [k / 2, rounded up][32][2] bf16
//   kInt8     for each 32 of k: f16 scales[32]; int8 [8][32][4]
//   kInt4     for each 32 of k: f16 scales[32]; nibbles [4][32][4]
//   kInt4Min  for each 32 of k: f16 scales[32]; f16 minima[32]; nibbles [4][32][4]
// The last index of the quantised ones counts four neighbours of k (a quad). A nibble byte at [j]
// holds quad j in its low and quad j + 4 in its high half. Values are scale * q (int8),
// scale * (q - 8) (kInt4), scale * q + minimum: GGUF's Q8_0, Q4_0 and Q4_1 to the bit, in as many
// bytes.
enum class Element : std::uint8_t { kF32, kBF16, kInt8, kInt4, kInt4Min };

inline constexpr int kPanelColumns = 32;
inline constexpr int kGroupValues = 32;  // of k that share a scale
inline constexpr int kQuadValues = 4;
inline constexpr int kGroupQuads = kGroupValues / kQuadValues;
inline constexpr int kInt4ZeroPoint = 8;

// Bytes of the scales (and minima) in front of a group of a quantised panel.
constexpr int group_header_bytes(Element element) {
  constexpr int kScales = kPanelColumns * 2;
  return element == Element::kInt4Min ? 2 * kScales : kScales;
}
constexpr int group_bytes(Element element) {
  constexpr int kValues = kPanelColumns * kGroupValues;
  return group_header_bytes(element) + (element == Element::kInt8 ? kValues : kValues / 2);
}

constexpr std::int64_t panel_bytes(Element element, std::int64_t k) {
  switch (element) {
    case Element::kF32:
      return kPanelColumns * k * 4;
    case Element::kBF16:
      return kPanelColumns * ((k + 1) / 2) * 4;
    case Element::kInt8:
    case Element::kInt4:
    case Element::kInt4Min:
      return k / kGroupValues * group_bytes(element);
  }
  return 0;
}

constexpr bool is_quantised(Element element) {
  return element != Element::kF32 && element != Element::kBF16;
}

// What rows are turned into before they meet a weight; the last two are for quantised ones. They
// have a scale for each 32 values of a row: q = round(x / scale), scale = max |x| / (largest q); a
// group with a NaN or an infinity is NaN. The largest q is 127, or 254 * 127 + 126: an int16 value
// is 254 * high + low with both in -127 ... 127, two rows of int8 for the products.
enum class Activation : std::uint8_t { kF32, kBF16, kInt8, kInt16 };

inline constexpr int kPlaneBase = 254;
constexpr int planes(Activation activation) { return activation == Activation::kInt16 ? 2 : 1; }

// Rows are packed in tiles, so that one tile's values for a step of k are neighbours. The last tile
// has the rows that are left. Inside, the layout belongs to the kernels.
inline constexpr int kFloatTileRows = 6;
inline constexpr int kIntTileRows = 4;  // of int8

constexpr int tile_rows(Activation activation) {
  switch (activation) {
    case Activation::kF32:
    case Activation::kBF16:
      return kFloatTileRows;
    case Activation::kInt8:
    case Activation::kInt16:
      return kIntTileRows / planes(activation);
  }
  return 0;
}
// Bytes of one row of a packed tile: tile t starts at t * tile_rows * packed_row_bytes.
constexpr std::int64_t packed_row_bytes(Activation activation, std::int64_t k) {
  // Behind a group's values: the scale, the scale times the sum of q, and the sum of each plane.
  constexpr int kFloats = 2;
  switch (activation) {
    case Activation::kF32:
    case Activation::kBF16:
      return (k + 1) / 2 * 2 * std::int64_t{sizeof(float)};
    case Activation::kInt8:
    case Activation::kInt16:
      return k / kGroupValues *
             (planes(activation) * (kGroupValues + std::int64_t{sizeof(std::int32_t)}) +
              std::int64_t{kFloats * sizeof(float)});
  }
  return 0;
}

// Queries that one pass over the keys of a segment serves.
inline constexpr int kMaxQueries = 48;

// Up to a tile's rows to be packed.
struct RowTile {
  const float* rows[kFloatTileRows] = {};  // [k] each
  int count = 0;
  std::int64_t k = 0;
  void* out = nullptr;  // [count * packed_row_bytes]
  Activation activation = Activation::kF32;
};

// Rows of one call of multiply_panel at the most. A multiple of all tile sizes.
inline constexpr int kMaxProductRows = 120;

enum class ProductResult : std::uint8_t { kStore, kAdd };

// A long k may be multiplied in several calls, one part after the other from 0 to k: meanwhile the
// sums rest. `out` is written by the call that ends at k.
struct PartOfK {
  std::int64_t begin = 0;  // a multiple of kGroupValues
  std::int64_t end = 0;    // the same, or k
  float* sums = nullptr;   // [rows, kPanelColumns]: read unless begin is 0, and overwritten
};

// out[rows, columns] = (or +=) rows * panel^T.
struct PanelProduct {
  const void* panel = nullptr;  // of `element`
  const void* tiles = nullptr;  // `rows` packed rows of `activation`
  float* out = nullptr;         // [rows, out_stride], at the panel's first column
  std::int64_t k = 0;
  std::int64_t out_stride = 0;
  int rows = 0;     // 1 to kMaxProductRows
  int columns = 0;  // 1 to 32 that exist
  Element element = Element::kF32;
  Activation activation = Activation::kF32;  // kInt8 or kInt16 if `element` is quantised
  ProductResult result = ProductResult::kStore;
  const PartOfK* part = nullptr;  // null: all of k
};

// Attention of up to kMaxQueries queries over one segment of one KV head.
struct SegmentAttention {
  const void* const* k_rows = nullptr;     // [counts max] rows of `element`, of all KV heads
  const void* const* v_rows = nullptr;     // the same of the values
  const float* queries[kMaxQueries] = {};  // [head_dim] each
  float* partials[kMaxQueries] = {};       // [kPartialHeader + head_dim] each; written if count > 0
  int counts[kMaxQueries] = {};            // tokens in front that query i sees; 0: none
  float* scratch = nullptr;                // [attention_scratch(head_dim)]
  std::int64_t head_offset = 0;            // bytes from a row to this head's [head_dim] values
  int query_count = 0;
  int head_dim = 0;
  float scale = 0.0f;
  Element element = Element::kF32;
};

// What few queries read from memory: fetched while they compute, in this order, as evenly as their
// work allows. There may be more than they read: what comes next.
struct FetchedRun {
  const char* begin = nullptr;
  const char* end = nullptr;
};
struct FetchedRuns {
  const FetchedRun* runs = nullptr;  // [count]
  int count = 0;
};

// The scores of all queries; keys and values of a segment in f32.
constexpr std::int64_t attention_scratch(int head_dim) {
  return kSegmentTokens * (kMaxQueries + 2 * std::int64_t{head_dim});
}

struct KernelTable {
  void (*multiply_panel)(const PanelProduct& product);
  void (*pack_rows)(const RowTile& tile);
  // One row.
  void (*rms_norm)(const float* in, const float* weight, float* out, std::int64_t width,
                   float epsilon);
  void (*silu_mul)(const float* gate, const float* up, float* out, std::int64_t count);
  // The lowest index of the largest value; NaN counts as -inf, so that a broken row has one too.
  std::int64_t (*index_of_max)(const float* in, std::int64_t count);
  // out[i] = exp((in[i] - max) * inverse_temperature), 0 for NaN.
  void (*softmax_weights)(const float* in, float* out, std::int64_t count, float max,
                          float inverse_temperature);
  // The same segment for `heads` KV heads: with few queries all heads pass over a few rows at a
  // time, so that memory is read nearly in its order.
  void (*attend_segment)(const SegmentAttention* segments, int heads, const FetchedRuns& fetched);
  // state = state (the segments so far) merged with `partial` (the next segment).
  void (*merge_partial)(float* state, const float* partial, int head_dim);
  void (*finish_attention)(const float* state, float* out, int head_dim);
};

const KernelTable& kernels_v2();  // -march=x86-64-v2
const KernelTable& kernels_v3();  // -march=x86-64-v3: AVX2 and FMA
const KernelTable& kernels_v4();  // -march=x86-64-v4 with AVX-512 VNNI and BF16

}  // namespace hisparse::device::cpu
