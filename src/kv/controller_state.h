// What the LifecycleController owns. Internal to kv/: the controller changes it, PlanBuilder and
// the invariant checker read it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "kv/block.h"
#include "kv/eviction_order.h"
#include "kv/heat.h"
#include "kv/lifecycle_controller.h"
#include "kv/prefix_index.h"
#include "kv/slot_pool.h"

namespace hisparse::kv {

// One sequence's block table. It holds one reference on each of its blocks.
struct SequenceTable {
  BlockKey root;
  std::vector<base::BlockId> blocks;  // [page]
  std::int64_t written = 0;           // tokens
  std::int64_t reserved = 0;          // pages that it may have in all without asking for room again

  std::int64_t pages_to_come() const {
    return std::max<std::int64_t>(0, reserved - static_cast<std::int64_t>(blocks.size()));
  }
};

// Totals since the start; see KvStats.
struct KvTotals {
  std::int64_t lookup_tokens = 0;
  std::int64_t hit_tokens = 0;
  std::array<std::int64_t, kTiers> hit_pages{};
  std::int64_t dropped_blocks = 0;
  std::int64_t deduplicated_blocks = 0;
  std::int64_t stray_completions = 0;
  std::int64_t failed_transfers = 0;
  std::int64_t lost_pages = 0;
  std::int64_t adopted_pages = 0;
  std::int64_t exchanged_pages = 0;
  MoveCounts moved{};
  std::array<std::int64_t, kMoveReasons> moved_for{};
};

// Blocks, slots, index and tables, with the few primitive moves that keep them consistent with each
// other. Data is public so that tests can break it and see the checker object. Engine thread.
struct ControllerState {
  explicit ControllerState(const ControllerConfig& configuration);

  const Block& block(base::BlockId id) const { return blocks[checked(id)]; }
  Block& block(base::BlockId id) { return blocks[checked(id)]; }
  const SlotPool& pool(Tier tier) const { return pools[index_of(tier)]; }
  SlotPool& pool(Tier tier) { return pools[index_of(tier)]; }
  std::int64_t capacity() const;  // slots, over all tiers
  // A tier that could not be written several times in a row, or has lost many pages, takes no
  // further ones.
  bool closed(Tier tier) const;
  bool any_closed() const { return closed(Tier::kHost) || closed(Tier::kDisk); }
  std::int64_t free_slots(Tier tier) const { return closed(tier) ? 0 : pool(tier).free(); }
  std::int64_t usable_slots() const;  // over all tiers: in use, or free in an open tier
  bool full(const Block& block) const;
  std::int64_t pages_for(std::int64_t tokens) const;
  const SequenceTable& table(base::SequenceId sequence) const;  // must be known (checked)
  SequenceTable& table(base::SequenceId sequence);
  // The sequences whose tables hold the block.
  std::vector<base::SequenceId> holders(base::BlockId id) const;

  // A fresh private block for page `depth`, with one reference and a resident slot, filling.
  base::BlockId create_block(std::int32_t depth);
  // The next free block becomes a cached one of page `depth` under `content`, whose key must be
  // free (checked). Its one copy is this disk slot, which is already its own, filling.
  void adopt_block(const BlockContent& content, std::int32_t depth, base::SlotId slot,
                   std::uint64_t stamp);
  // Enters a full block into the index; false, and nothing changed, when its key is taken.
  [[nodiscard]] bool index_block(base::BlockId id, const BlockContent& content);
  // Gives back every slot of a cached block without children that no transfer holds (all checked).
  void evict(base::BlockId id, std::vector<Location>& freed);
  // Gives back a whole copy of a block that has another and that no transfer holds (checked).
  void drop_copy(base::BlockId id, Tier tier, std::vector<Location>& freed);
  void set_copy_state(base::BlockId id, Tier tier, CopyState state);
  void reference(base::BlockId id);  // of an indexed block
  // Without references an indexed block is cached, one that a transfer holds waits for its end, and
  // any other is destroyed.
  void unreference(base::BlockId id, std::vector<Location>& freed);
  // Takes a cached block and all behind it out of the index: its content is gone.
  void forget(base::BlockId id, std::vector<Location>& freed);

  // Takes a slot in `to` and holds both copies until end_move. The source must be whole, nothing
  // else may move the block, and `to` must have a free slot and no copy of it (all checked).
  TransferOp start_move(base::BlockId id, Tier from, Tier to, MoveReason reason);
  // A transfer of in_flight is over. Frees a destination that was not filled; a block that nobody
  // holds any more goes.
  void end_move(base::TransferId id, bool filled, std::vector<Location>& freed);

  ControllerConfig config;
  std::vector<Block> blocks;               // [block id]; as many as all tiers have slots
  std::vector<base::BlockId> free_blocks;  // taken from the back
  std::array<SlotPool, kTiers> pools;      // [tier]
  PrefixIndex index;
  EvictionOrder cached;
  // With persistence: the indexed blocks that have no whole copy on disk, in the order in which
  // they were published, so parents come first.
  std::map<std::uint64_t, base::BlockId> unpersisted;
  Heat heat;
  std::int64_t exchange_left = 0;      // pages, until the next re-plan
  std::uint64_t observed_queries = 0;  // since the start
  std::unordered_map<base::SequenceId, SequenceTable> tables;
  std::unordered_map<base::TransferId, TransferOp> in_flight;
  std::array<std::int32_t, kTiers> failed_writes{};  // in a row
  std::array<std::int32_t, kTiers> lost_copies{};    // since the start
  KvTotals totals;
  std::uint64_t epoch = 1;  // one more at every change; a default KvPlan is of none
  std::uint64_t next_publication = 1;
  std::int64_t next_transfer = 0;

 private:
  std::size_t checked(base::BlockId id) const;
  void destroy_block(base::BlockId id, std::vector<Location>& freed);
  void give_back_copy(Block& block, Tier tier, std::vector<Location>& freed);
  void remove_from_index(base::BlockId id);
  // Puts the block in its place in `unpersisted`, or takes it out.
  void note_persistence(base::BlockId id);
  std::shared_ptr<const PersistedPage> persisted_form(const Block& moved) const;
};

struct LifecycleController::State final : ControllerState {
  using ControllerState::ControllerState;
};

}  // namespace hisparse::kv
