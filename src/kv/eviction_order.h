// Which cached block goes first when room is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

#include "base/ids.h"
#include "kv/block.h"

namespace hisparse::kv {

// Sorts before what is worth more: used longest ago, then deepest, then by id (a total order, so
// plans are deterministic). Who held a child held its parent, so a parent's stamp is never older
// than its child's, and this order always drops children before their parents.
struct EvictionRank {
  std::uint64_t stamp = 0;
  std::int32_t depth = 0;
  base::BlockId block;

  friend bool operator==(const EvictionRank&, const EvictionRank&) = default;
  friend bool operator<(const EvictionRank& a, const EvictionRank& b) {
    if (a.stamp != b.stamp) return a.stamp < b.stamp;
    if (a.depth != b.depth) return a.depth > b.depth;
    return a.block < b.block;
  }
};

inline EvictionRank rank_of(const Block& block, base::BlockId id) {
  return {.stamp = block.stamp, .depth = block.depth, .block = id};
}

// The cached blocks (indexed, used by no sequence), first to go first.
using EvictionOrder = std::set<EvictionRank>;

}  // namespace hisparse::kv
