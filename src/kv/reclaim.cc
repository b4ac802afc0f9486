#include "kv/reclaim.h"

#include <algorithm>
#include <tuple>

namespace hisparse::kv {
namespace {

constexpr std::size_t kRecentPages = 2;

// Sorts before what is worth more: cheapest, then coldest, then oldest.
struct VictimRank {
  Cost cost = Cost::kUnused;
  int heat_level = 0;
  std::uint64_t stamp = 0;
  std::int32_t depth = 0;
  base::BlockId block;

  friend bool operator<(const VictimRank& a, const VictimRank& b) {
    return std::tie(a.cost, a.heat_level, a.stamp, a.depth, a.block) <
           std::tie(b.cost, b.heat_level, b.stamp, b.depth, b.block);
  }
};

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
      : state_(state), references_(references), costs_(state) {}

  void resident(Reclaimable& found) const {
    const SlotPool& pool = state_.pool(Tier::kResident);
    std::vector<VictimRank> clean, dirty, exchangeable;
    for (std::int32_t slot = 0; slot < pool.capacity(); ++slot) {
      if (pool.state(base::SlotId(slot)) != CopyState::kReady) continue;
      const base::BlockId id = pool.owner(base::SlotId(slot));
      const Block& block = state_.block(id);
      if (block.moving.valid()) continue;
      const std::int32_t references = references_(id);
      if (references == 0 && !block.indexed) continue;  // goes with its sequence
      const VictimRank ranked = rank(id, references);
      (block.clean() ? clean : dirty).push_back(ranked);
      if (!state_.heat.on() || ranked.cost == Cost::kProtected) continue;
      exchangeable.push_back(ranked);
      if (ranked.cost == Cost::kUnused) ++found.unused;
    }
    found.clean = in_order(clean);
    found.dirty = in_order(dirty);
    found.exchangeable = in_order(exchangeable);
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
    const auto touched = static_cast<std::uint64_t>(state_.heat.touched(id));
    return {.cost = costs_.of(id, references),
            .heat_level = state_.heat.level(id),
            .stamp = references > 0 ? touched : block.stamp,
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
  const Costs costs_;
};

}  // namespace

Costs::Costs(const ControllerState& state) {
  for (const auto& [sequence, table] : state.tables) {
    if (table.blocks.empty()) continue;
    protected_.insert(table.blocks.front());
    const auto full = static_cast<std::size_t>(table.written / state.config.page_tokens);
    for (std::size_t page = full - std::min(full, kRecentPages); page < full; ++page) {
      protected_.insert(table.blocks[page]);
    }
  }
}

Cost Costs::of(base::BlockId id, std::int32_t references) const {
  if (references == 0) return Cost::kUnused;
  return references > 1 || protected_.contains(id) ? Cost::kProtected : Cost::kInUse;
}

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
