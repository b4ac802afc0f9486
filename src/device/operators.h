// Parameters of the device operators. Each is a plain value that is copied when the operator is
// enqueued; the device memory it names must stay as it is until the operator has run. Activations
// are f32, row-major.
//
// Numerics contract (ARCHITECTURE section 2a): the bits of a result row depend on its own inputs
// only, never on `rows`, on the other rows, on page size or addresses, or on the number of threads.
#pragma once

#include <array>
#include <cstdint>

#include "base/dtype.h"
#include "base/ids.h"
#include "device/attention_segment.h"
#include "device/device_ptr.h"

namespace hisparse::device {

class Weight;
struct Event;

// out[r] = table[tokens[r] - first_token], or zeros for a token outside [first_token, first_token +
// table rows): with a vocabulary split over ranks an all-reduce then completes the row.
struct EmbedParams {
  const Weight* table = nullptr;          // [vocabulary of this rank, width]
  DevicePtr<const base::TokenId> tokens;  // [rows]
  DevicePtr<float> out;                   // [rows, width]
  std::int64_t rows = 0;
  base::TokenId first_token = 0;
};

// What a linear operator makes of its input before the products.
//   kPlain    in
//   kRmsNorm  operand * in / sqrt(mean(in^2) + epsilon), statistics in f32 in one fixed order
//   kSiluMul  silu(in) * operand
enum class LinearInput : std::uint8_t { kPlain, kRmsNorm, kSiluMul };

// kAdd: the products are added to what `out` holds (a residual), each in one addition.
enum class LinearResult : std::uint8_t { kStore, kAdd };

struct LinearProduct {
  const Weight* weight = nullptr;  // [n, k]
  DevicePtr<float> out;            // [rows, n]; not `in` or `operand`
};

inline constexpr int kMaxProducts = 3;

// out = input * weight^T for one to kMaxProducts weights of equal k that share their input (q, k
// and v; gate and up). Every output is one f32 sum over K in rising order, whatever the number of
// rows. A bf16 weight rounds its input to bf16 first (to nearest, ties to even). A quantised weight
// quantises it to 8 or 16 bits, with one scale for each 32 values of a row; its sum goes over these
// groups, within which it is an exact integer.
struct LinearParams {
  std::array<LinearProduct, kMaxProducts> products = {};  // those in front that have a weight
  DevicePtr<const float> in = {};                         // [rows, k]
  DevicePtr<const float> operand = {};                    // kRmsNorm: [k]; kSiluMul: [rows, k]
  std::int64_t rows = 0;
  float epsilon = 0.0f;  // kRmsNorm
  LinearInput input = LinearInput::kPlain;
  LinearResult result = LinearResult::kStore;
};

// cos_sin[r, i] = {cos, sin}(positions[r] * inverse_frequencies[i]), computed in double, rounded
// once.
struct RopeAnglesParams {
  DevicePtr<const std::int64_t> positions;      // [rows]
  DevicePtr<const double> inverse_frequencies;  // [rotary_pairs]
  DevicePtr<float> cos_sin;                     // [rows, rotary_pairs, 2]
  std::int64_t rows = 0;
  std::int64_t rotary_pairs = 0;
};

// Where the KV rows of one layer lie. Token t of the sequence in `sequence_slots[r]` is in page t /
// page_tokens of its table row; its K row starts at
//   addresses[slot * pages_per_sequence + t / page_tokens] + k_offset + (t % page_tokens) *
//   row_bytes
// and likewise V, with row_bytes = kv_heads * head_dim * bytes of `dtype`. All 64-bit.
struct KvPages {
  DevicePtr<const std::uint64_t>
      addresses;  // [sequence slots, pages_per_sequence] device addresses
  std::int64_t pages_per_sequence = 0;
  std::int64_t k_offset = 0;
  std::int64_t v_offset = 0;
  std::int32_t page_tokens = 0;
  std::int32_t kv_heads = 0;  // of this rank
  std::int32_t head_dim = 0;
  base::DType dtype = base::DType::kF32;  // kF32 or kBF16
};

// The rows of a step: row r is the token at `positions[r]` of the sequence in `sequence_slots[r]`.
struct RowPlacement {
  DevicePtr<const std::int32_t> sequence_slots;  // [rows]
  DevicePtr<const std::int64_t> positions;       // [rows]
  std::int64_t rows = 0;
};

// Rotates q in place and writes rotated k, and v, into the pages. Half-split pairs (x[i], x[i +
// pairs]) over the first 2 * rotary_pairs values of each head; the rest is copied
// (reference/models.md section 1.4).
struct RopeAndStoreParams {
  DevicePtr<float> q;              // [rows, heads, head_dim]
  DevicePtr<const float> k;        // [rows, kv_heads, head_dim]
  DevicePtr<const float> v;        // [rows, kv_heads, head_dim]
  DevicePtr<const float> cos_sin;  // [rows, rotary_pairs, 2]
  RowPlacement placement;
  KvPages pages;
  std::int64_t rotary_pairs = 0;
  std::int32_t heads = 0;
};

// Causal attention of each row over the tokens 0 ... positions[r] of its sequence, all of which are
// in the pages. Query head h reads KV head h / (heads / kv_heads). Keys are taken in segments of
// 256 tokens from position 0, whatever the page size; each segment gives (max, sum, weighted
// values) in f32, and segments merge left to right, so a prefill chunk and a decode step give the
// same bits for the same row.
//
// Where the pages do not fit all at once, several calls in a row take a window of segments each,
// from 0 to the end; only the pages of its window must be there in a call. A row is finished by the
// window that holds its last key. The bits are those of a single call.
inline constexpr std::int64_t kAllSegments = std::int64_t{1} << 62;

struct SegmentWindow {
  std::int64_t first = 0;
  std::int64_t end = kAllSegments;
  // [rows, heads, 2 + head_dim], kept from call to call; not for a single one.
  DevicePtr<float> state = {};
};

struct PagedAttentionParams {
  DevicePtr<const float> q;  // [rows, heads, head_dim], rotated
  DevicePtr<float> out;      // [rows, heads, head_dim]; not `q`
  RowPlacement placement;
  KvPages pages;
  std::int32_t heads = 0;
  float scale = 0.0f;  // head_dim^-0.5
  SegmentWindow window = {};
  std::uint64_t wait_ticket =
      0;  // the pages may be read only after this event's ticket (restores); 0: at once
};

// masses[i] = the share that page page_indices[i] gets of the attention of one query row over the
// `count` pages listed, as a mean over the heads; they sum up to 1. Reads the keys of tokens 0 ...
// `position` in these pages, and changes nothing else: placement looks at it, no answer depends on
// it.
struct PageMassParams {
  DevicePtr<const float> q;                    // [heads, head_dim], rotated
  DevicePtr<const std::int32_t> page_indices;  // [count] in the sequence, each begun by `position`
  DevicePtr<float> masses;                     // [count]
  std::int64_t count = 0;
  std::int64_t position = 0;
  std::int32_t sequence_slot = 0;
  std::int32_t heads = 0;
  float scale = 0.0f;  // head_dim^-0.5
  KvPages pages;
};

// accumulator += addend.
struct AddParams {
  DevicePtr<float> accumulator;   // [count]
  DevicePtr<const float> addend;  // [count]
  std::int64_t count = 0;
};

// out[i] = in[indices[i]].
struct GatherRowsParams {
  DevicePtr<const float> in;              // [?, width]
  DevicePtr<const std::int32_t> indices;  // [rows]
  DevicePtr<float> out;                   // [rows, width]; not `in`
  std::int64_t rows = 0;
  std::int64_t width = 0;
};

// out[r, first_column ... first_column + width) = in[r].
struct CopyColumnsParams {
  DevicePtr<const float> in;  // [rows, width]
  DevicePtr<float> out;       // [rows, out_width]
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t out_width = 0;
  std::int64_t first_column = 0;
};

inline constexpr int kMaxRanks = 64;

// For every i in [begin, end): the sum over ranks 0, 1, ... in that order, written to all of them.
struct SumRanksParams {
  DevicePtr<float> buffers[kMaxRanks];  // one per rank, equal sizes
  int ranks = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// How one row is sampled. Pointer-free: it travels in a StepPlan and is copied to the device as it
// is.
struct SampleRow {
  float temperature = 0.0f;   // 0: greedy, ties to the lowest id
  float top_p = 1.0f;         // (0, 1]
  std::int32_t top_k = 0;     // 0: off
  std::int32_t reserved = 0;  // keeps the layout free of padding
  std::uint64_t seed = 0;     // key of the counter-based generator
  std::uint64_t counter = 0;  // index of the token in its request's output
};

// tokens[r] = a draw from softmax(logits[r] / temperature) cut to the top_k largest and then to the
// smallest prefix whose mass reaches top_p (at least one token; ties to the lowest id). One draw of
// Philox (base/philox.h) per row.
struct SampleParams {
  DevicePtr<const float> logits;           // [rows, vocabulary]
  DevicePtr<const SampleRow> rows_params;  // [rows]
  DevicePtr<base::TokenId> tokens;         // [rows]
  std::int64_t rows = 0;
  std::int64_t vocabulary = 0;
};

}  // namespace hisparse::device
