// KV rows from elsewhere: an engine with a KvSource never reads a prompt. For measurements and
// tests of contexts that would take hours to prefill. Only LaunchOptions names one, no request can.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/ids.h"

namespace hisparse::engine {

// The rows of neighbouring tokens of one sequence, in one layer on one rank.
struct KvRows {
  std::int32_t layer = 0;
  std::int64_t first = 0;                 // position of the first token
  std::span<const base::TokenId> tokens;  // [rows]
  std::int32_t first_kv_head = 0;         // of the rank
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  base::DType dtype = base::DType::kF32;  // kF32 or kBF16
  // Both [rows, kv_heads, head_dim] of dtype; keys as they lie in pages, that is, rotated.
  std::span<std::byte> keys;
  std::span<std::byte> values;
};

// Gives the rows of every token of every prompt but the last one, which runs through the model. The
// pages are ordinary ones from then on: published, shared, moved between tiers. Its rows must
// follow from layer, head, and the tokens up to the row's own, or cached prefixes would mean
// different things.
class KvSource {
 public:
  virtual ~KvSource() = default;
  // Fills keys and values. Worker threads, one for each rank, at the same time.
  virtual void fill(const KvRows& rows) = 0;
};

}  // namespace hisparse::engine
