// What the LifecycleController owns. Internal to kv/: the controller changes it, PlanBuilder and
// the invariant checker read it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "kv/block.h"
#include "kv/eviction_order.h"
#include "kv/lifecycle_controller.h"
#include "kv/prefix_index.h"
#include "kv/slot_pool.h"

namespace hisparse::kv {

// One sequence's block table. It holds one reference on each of its blocks.
struct SequenceTable {
  BlockKey root;
  std::vector<base::BlockId> blocks;  // [page]
  std::int64_t written = 0;           // tokens
};

// Totals since the start; see KvStats.
struct KvTotals {
  std::int64_t lookup_tokens = 0;
  std::int64_t hit_tokens = 0;
  std::int64_t dropped_blocks = 0;
  std::int64_t deduplicated_blocks = 0;
  std::int64_t stray_completions = 0;
};

// Blocks, slots, index and tables, with the few primitive moves that keep them consistent with each
// other. Data is public so that tests can break it and see the checker object. Engine thread.
struct ControllerState {
  explicit ControllerState(const ControllerConfig& configuration);

  const Block& block(base::BlockId id) const { return blocks[checked(id)]; }
  Block& block(base::BlockId id) { return blocks[checked(id)]; }
  const SlotPool& pool(Tier tier) const { return pools[index_of(tier)]; }
  SlotPool& pool(Tier tier) { return pools[index_of(tier)]; }
  bool full(const Block& block) const;
  std::int64_t pages_for(std::int64_t tokens) const;
  const SequenceTable& table(base::SequenceId sequence) const;  // must be known (checked)
  SequenceTable& table(base::SequenceId sequence);

  // A fresh private block for page `depth`, with one reference and a resident slot, filling.
  base::BlockId create_block(std::int32_t depth);
  // Gives back every slot of an unreferenced block; its id may be used again.
  void destroy_block(base::BlockId id, std::vector<base::SlotId>& freed);
  void evict(base::BlockId id, std::vector<base::SlotId>& freed);  // must be cached (checked)
  void set_copy_state(base::BlockId id, Tier tier, CopyState state);
  void reference(base::BlockId id);  // of an indexed block
  // Without references an indexed block is cached and any other destroyed.
  void unreference(base::BlockId id, std::vector<base::SlotId>& freed);

  ControllerConfig config;
  std::vector<Block> blocks;               // [block id]; as many as all tiers have slots
  std::vector<base::BlockId> free_blocks;  // taken from the back
  std::array<SlotPool, kTiers> pools;      // [tier]
  PrefixIndex index;
  EvictionOrder cached;
  std::unordered_map<base::SequenceId, SequenceTable> tables;
  KvTotals totals;
  std::uint64_t epoch = 1;  // one more at every change; a default KvPlan is of none

 private:
  std::size_t checked(base::BlockId id) const;
};

struct LifecycleController::State final : ControllerState {
  using ControllerState::ControllerState;
};

}  // namespace hisparse::kv
