#include "kv/reclaim.h"

#include <algorithm>
#include <tuple>

namespace hisparse::kv {
namespace {

// What goes last among the pages in use: the first page (attention sinks), the most recent full
// ones, and what several requests share.
constexpr std::size_t kRecentPages = 2;

// Sorts before what is worth more.
struct VictimRank {
  int cost = 0;  // 0: used by nobody; 1: in use; 2: in use and protected
  std::uint64_t stamp = 0;
  std::int32_t depth = 0;
  base::BlockId block;

  friend bool operator<(const VictimRank& a, const VictimRank& b) {
    return std::tie(a.cost, a.stamp, a.depth, a.block) <
           std::tie(b.cost, b.stamp, b.depth, b.block);
  }
};

std::unordered_set<base::BlockId> protected_blocks(const ControllerState& state) {
  std::unordered_set<base::BlockId> blocks;
  for (const auto& [sequence, table] : state.tables) {
    if (table.blocks.empty()) continue;
    blocks.insert(table.blocks.front());
    const auto full = static_cast<std::size_t>(table.written / state.config.page_tokens);
    for (std::size_t page = full - std::min(full, kRecentPages); page < full; ++page) {
      blocks.insert(table.blocks[page]);
    }
  }
  return blocks;
}

std::vector<base::BlockId> in_order(std::vector<VictimRank>& ranks) {
  std::ranges::sort(ranks, [](const auto& a, const auto& b) { return a < b; });
  std::vector<base::BlockId> blocks;
  blocks.reserve(ranks.size());
  for (const VictimRank& rank : ranks) blocks.push_back(rank.block);
  return blocks;
}

class Search final {
 public:
  Search(const ControllerState& state, const ReferenceCount& references)
      : state_(state), references_(references), protected_(protected_blocks(state)) {}

  void resident(Reclaimable& found) const {
    const SlotPool& pool = state_.pool(Tier::kResident);
    std::vector<VictimRank> clean, dirty;
    for (std::int32_t slot = 0; slot < pool.capacity(); ++slot) {
      if (pool.state(base::SlotId(slot)) != CopyState::kReady) continue;
      const base::BlockId id = pool.owner(base::SlotId(slot));
      const Block& block = state_.block(id);
      if (block.moving.valid()) continue;
      const std::int32_t references = references_(id);
      if (references == 0 && !block.indexed) continue;  // goes with its sequence
      (block.clean() ? clean : dirty).push_back(rank(id, references));
    }
    found.clean = in_order(clean);
    found.dirty = in_order(dirty);
  }

  void doubled(Reclaimable& found) const {
    if (state_.config.persistence == Persistence::kOff) return;
    const SlotPool& pool = state_.pool(Tier::kHost);
    std::vector<VictimRank> ranks;
    for (std::int32_t slot = 0; slot < pool.capacity(); ++slot) {
      const base::BlockId id = pool.owner(base::SlotId(slot));
      if (!id.valid() || !state_.block(id).doubled() || state_.block(id).moving.valid()) continue;
      ranks.push_back(rank(id, references_(id)));
    }
    found.doubled = in_order(ranks);
  }

  void cached(const std::vector<base::BlockId>& added, Reclaimable& found) const {
    std::vector<base::BlockId> order;
    for (const EvictionRank& rank : state_.cached) order.push_back(rank.block);
    order.insert(order.end(), added.begin(), added.end());
    std::erase_if(order, [this](base::BlockId id) {
      return references_(id) > 0 || state_.block(id).moving.valid();
    });
    ChildrenGone gone;
    for (const base::BlockId id : order) {
      if (only_in_closed_tiers(id)) add_leaf(id, gone, found.worthless);
    }
    ChildrenGone below_gone = gone, resident_gone = gone;
    for (const base::BlockId id : order) {
      const Block& block = state_.block(id);
      if (only_in_closed_tiers(id)) continue;
      if (!block.copy(Tier::kResident)) {
        add_leaf(id, below_gone, found.cached_below);
      } else if (!block.clean()) {
        add_leaf(id, resident_gone, found.cached_resident);
      }
    }
  }

 private:
  VictimRank rank(base::BlockId id, std::int32_t references) const {
    const Block& block = state_.block(id);
    int cost = 0;
    if (references > 0) cost = references > 1 || protected_.contains(id) ? 2 : 1;
    return {.cost = cost,
            .stamp = references > 0 ? 0 : block.stamp,
            .depth = references > 0 ? block.depth : -block.depth,
            .block = id};
  }

  bool only_in_closed_tiers(base::BlockId id) const {
    return std::ranges::all_of(
        kAllTiers, [&](Tier tier) { return !state_.block(id).copy(tier) || state_.closed(tier); });
  }

  // A parent can go once all its children have, in the same list or before.
  using ChildrenGone = std::unordered_map<base::BlockId, std::int32_t>;
  void add_leaf(base::BlockId id, ChildrenGone& gone, std::vector<base::BlockId>& list) const {
    const Block& block = state_.block(id);
    const auto children = gone.find(id);
    if (block.children != (children == gone.end() ? 0 : children->second)) return;
    if (block.parent.valid()) ++gone[block.parent];
    list.push_back(id);
  }

  const ControllerState& state_;
  const ReferenceCount& references_;
  const std::unordered_set<base::BlockId> protected_;
};

}  // namespace

Reclaimable find_reclaimable(const ControllerState& state, const ReferenceCount& references,
                             const std::vector<base::BlockId>& added) {
  Reclaimable found;
  const Search search(state, references);
  search.resident(found);
  search.doubled(found);
  search.cached(added, found);
  found.lower_free = state.free_slots(Tier::kHost) + state.free_slots(Tier::kDisk);
  return found;
}

}  // namespace hisparse::kv
