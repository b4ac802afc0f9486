// What an earlier process left on disk becomes part of the prefix index.
#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "kv/controller_state.h"
#include "kv/lifecycle_controller.h"

namespace hisparse::kv {
namespace {

struct Candidate {
  const PersistedPage* page = nullptr;
  BlockKey key;
  std::uint64_t stamp = 0;
  std::size_t parent = 0;  // index of a candidate, unless it is a first page
  base::BlockId block;
};

// Chooses the pages that make whole chains. They come from a file: nothing of them is believed but
// their tokens, from which the keys are computed.
class Choice final {
 public:
  Choice(const ControllerState& state, std::span<const PersistedPage> pages) : state_(state) {
    std::vector<std::pair<std::uint64_t, const PersistedPage*>> order;  // by age
    for (const PersistedPage& page : pages) order.emplace_back(order.size() + 1, &page);
    std::ranges::stable_sort(order, {}, [](const auto& entry) { return entry.second->depth; });
    for (const auto& [age, page] : order) consider(*page, age);
    // Parents before children up to here; a parent is worth as much as its best child.
    for (std::size_t i = chosen_.size(); i-- > 0;) {
      if (chosen_[i].page->depth == 0) continue;
      Candidate& parent = chosen_[chosen_[i].parent];
      parent.stamp = std::max(parent.stamp, chosen_[i].stamp);
    }
  }

  std::vector<Candidate>& chosen() { return chosen_; }

 private:
  void consider(const PersistedPage& page, std::uint64_t age) {
    const SlotPool& disk = state_.pool(Tier::kDisk);
    if (page.slot.value() < 0 || page.slot.value() >= disk.capacity()) return;
    if (page.tokens.size() != static_cast<std::size_t>(state_.config.page_tokens)) return;
    Candidate candidate = {.page = &page,
                           .key = child_key(page.parent, page.tokens),
                           .stamp = age,
                           .parent = 0,
                           .block = {}};
    if (page.depth == 0) {
      if (page.parent != page.root) return;
    } else {
      const auto parent = by_key_.find(page.parent);
      if (parent == by_key_.end()) return;
      const PersistedPage& before = *chosen_[parent->second].page;
      if (before.root != page.root || before.depth != page.depth - 1) return;
      candidate.parent = parent->second;
    }
    if (by_key_.contains(candidate.key) || !slots_.insert(page.slot).second) return;
    by_key_.emplace(candidate.key, chosen_.size());
    chosen_.push_back(candidate);
  }

  const ControllerState& state_;
  std::vector<Candidate> chosen_;
  std::unordered_map<BlockKey, std::size_t, BlockKeyHash> by_key_;  // index into chosen_
  std::unordered_set<base::SlotId> slots_;
};

}  // namespace

std::int64_t LifecycleController::adopt(std::span<const PersistedPage> pages) {
  ControllerState& state = *state_;
  HS_CHECK(state.free_blocks.size() == state.blocks.size());
  if (state.config.prefix_caching == PrefixCaching::kOff) return 0;
  std::vector<Candidate> chosen = std::move(Choice(state, pages).chosen());
  std::vector<std::pair<base::SlotId, base::BlockId>> claims;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    chosen[i].block = state.free_blocks[state.free_blocks.size() - 1 - i];
    claims.emplace_back(chosen[i].page->slot, chosen[i].block);
  }
  state.pool(Tier::kDisk).take(claims);
  state.epoch += pages.size();
  for (const Candidate& candidate : chosen) {
    const PersistedPage& page = *candidate.page;
    state.adopt_block({.key = candidate.key,
                       .root = page.root,
                       .parent = page.depth == 0 ? base::BlockId() : chosen[candidate.parent].block,
                       .tokens = page.tokens},
                      page.depth, page.slot, candidate.stamp);
  }
  return static_cast<std::int64_t>(chosen.size());
}

}  // namespace hisparse::kv
