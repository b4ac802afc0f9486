// Sequences of SmolLM2's geometry with random keys and values of one layer in shuffled pages.
#pragma once

#include <cstdint>

#include "tests/bench/harness.h"

namespace hisparse::bench {

inline constexpr std::int32_t kHeads = 9;
inline constexpr std::int32_t kKvHeads = 3;
inline constexpr std::int32_t kHeadDim = 64;
inline constexpr std::int32_t kPageTokens = 64;                                     // the default
inline constexpr std::int64_t kKvRowBytes = std::int64_t{kKvHeads} * kHeadDim * 2;  // bf16
inline constexpr std::int64_t kTokenBytes = 2 * kKvRowBytes;                        // K and V

// Owns the pages. The device outlives it.
class RandomKv final {
 public:
  RandomKv(const Machine& machine, std::int64_t sequences, std::int64_t tokens,
           std::int32_t page_tokens = kPageTokens);

  const device::KvPages& pages() const { return pages_; }
  std::int64_t sequences() const { return sequences_; }
  std::int64_t plane_bytes() const { return pages_.page_tokens * kKvRowBytes; }  // of a page
  // The keys of page `page` of a sequence; its values lie behind them.
  const std::byte* page(std::int64_t sequence, std::int64_t page) const;

 private:
  void fill(const Machine& machine);

  const std::int64_t sequences_;
  device::Buffer slab_;
  device::Buffer table_;
  device::KvPages pages_;
};

}  // namespace hisparse::bench
