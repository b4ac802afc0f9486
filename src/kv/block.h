// The logical page and its copies. A tier is data on the block, never a subclass.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kv/block_key.h"
#include "kv/transfer.h"

namespace hisparse::kv {

// Filling: its rows are being produced, by its sequence or by a transfer. Ready: all rows are
// there. Draining: all rows are there and a transfer reads them.
enum class CopyState : std::uint8_t { kFilling, kReady, kDraining };
inline constexpr std::size_t kCopyStates = 3;

struct BlockCopy {
  base::SlotId slot;
  CopyState state = CopyState::kFilling;

  bool whole() const { return state != CopyState::kFilling; }
};

// What a hit must equal, besides being found by its key.
struct BlockContent {
  BlockKey key;
  BlockKey root;
  base::BlockId parent;  // not valid for the first page
  std::span<const base::TokenId> tokens;
};

// One page of one content, shared by every sequence that starts with it. Private to one sequence
// until it is full; then published (`indexed`), and from then on immutable but for `references`,
// `copies` and `stamp`. Owned by ControllerState; engine thread.
struct Block {
  base::BlockId parent;               // set when indexed; not valid for the first page
  std::vector<base::TokenId> tokens;  // whose rows have been produced; at most page_tokens
  BlockKey key;                       // set when indexed
  BlockKey root;                      // set when indexed: tells salts apart even if keys collide
  std::int32_t references = 0;        // tables of sequences that hold it
  std::int32_t children = 0;          // indexed blocks whose parent it is
  std::array<std::optional<BlockCopy>, kTiers> copies;
  std::uint64_t stamp = 0;      // epoch in which its last reference went
  std::uint64_t published = 0;  // one more for each block that was indexed; set when indexed
  std::int32_t depth = 0;       // page number in every sequence that holds it
  bool indexed = false;
  bool adopted = false;     // its copy on disk was written by an earlier process
  base::TransferId moving;  // the one transfer that reads or fills a copy; not valid if none does

  bool live() const {
    for (const std::optional<BlockCopy>& copy : copies) {
      if (copy) return true;
    }
    return false;
  }
  const std::optional<BlockCopy>& copy(Tier tier) const { return copies[index_of(tier)]; }
  std::optional<BlockCopy>& copy(Tier tier) { return copies[index_of(tier)]; }
  bool whole_in(Tier tier) const { return copy(tier) && copy(tier)->whole(); }
  // A copy below the resident tier has all rows.
  bool clean() const { return whole_in(Tier::kHost) || whole_in(Tier::kDisk); }
  // It takes room in both tiers below the slab.
  bool doubled() const { return copy(Tier::kHost) && copy(Tier::kDisk); }
  // Where its rows are read: the fastest tier that has them. A page that is not full is read (and
  // written) in the resident tier.
  std::optional<Location> location() const {
    for (const Tier tier : kAllTiers) {
      if (whole_in(tier)) return Location{.tier = tier, .slot = copy(tier)->slot};
    }
    if (!copy(Tier::kResident)) return std::nullopt;
    return Location{.tier = Tier::kResident, .slot = copy(Tier::kResident)->slot};
  }
};

}  // namespace hisparse::kv
