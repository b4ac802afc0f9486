#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "kv/controller_state.h"
#include "kv/lifecycle_controller.h"

namespace hisparse::kv {

// An overlay over the controller's state: what commit() of the plan so far would change. The
// numbers always hold available = free + unreferenced in the overlay - claimed, and are never
// negative.
struct PlanBuilder::State {
  explicit State(const ControllerState& base)
      : controller(base),
        available(base.pool(Tier::kResident).free() +
                  static_cast<std::int64_t>(base.cached.size())) {
    plan.epoch = base.epoch;
  }

  // What admit() or extend() gave a sequence.
  struct Holding {
    std::int64_t pages = 0;             // in all, with those it has in the controller
    std::optional<std::size_t> growth;  // its entry in plan.growths
  };

  bool known(base::SequenceId sequence) const {
    if (holdings.contains(sequence)) return true;
    return controller.tables.contains(sequence) && !released.contains(sequence);
  }

  std::int64_t pages_held(base::SequenceId sequence) const {
    const auto held = holdings.find(sequence);
    if (held != holdings.end()) return held->second.pages;
    if (!known(sequence)) return 0;
    return static_cast<std::int64_t>(controller.table(sequence).blocks.size());
  }

  std::int32_t references(base::BlockId block) const {
    const auto delta = reference_deltas.find(block);
    return controller.block(block).references +
           (delta == reference_deltas.end() ? 0 : delta->second);
  }

  // Also with no pages: the sequence counts as part of the plan from then on.
  void claim(base::SequenceId sequence, std::int64_t pages) {
    const std::int64_t before = pages_held(sequence);
    Holding& holding = holdings[sequence];
    holding.pages = before + pages;
    if (pages == 0) return;
    available -= pages;
    claimed += pages;
    if (!holding.growth) {
      holding.growth = plan.growths.size();
      plan.growths.push_back({.sequence = sequence, .new_pages = 0});
    }
    plan.growths[*holding.growth].new_pages += static_cast<std::int32_t>(pages);
  }

  void check_match(const PrefixMatch& match, const BlockKey& root) const;
  std::vector<base::BlockId> choose_evictions() const;

  const ControllerState& controller;
  std::unordered_map<base::BlockId, std::int32_t> reference_deltas;
  std::unordered_map<base::SequenceId, Holding> holdings;
  std::unordered_set<base::SequenceId> released;
  std::int64_t available;    // pages
  std::int64_t claimed = 0;  // pages
  std::int64_t freed = 0;    // pages of releases that are in no index
  KvPlan plan;
};

// A match from before a change could name blocks that hold another prompt's rows by now.
void PlanBuilder::State::check_match(const PrefixMatch& match, const BlockKey& root) const {
  if (match.blocks.empty()) {
    HS_CHECK(match.tokens == 0);
    return;
  }
  HS_CHECK(match.epoch == controller.epoch);
  HS_CHECK(match.tokens ==
           static_cast<std::int64_t>(match.blocks.size()) * controller.config.page_tokens);
  base::BlockId parent;
  for (const base::BlockId id : match.blocks) {
    const Block& block = controller.block(id);
    HS_CHECK(block.indexed && block.parent == parent && block.root == root);
    parent = id;
  }
}

// As many as the free slots fall short, in the order that the cached set will have after the plan's
// releases: what was cached before is older than what they add.
std::vector<base::BlockId> PlanBuilder::State::choose_evictions() const {
  const std::int64_t needed = claimed - controller.pool(Tier::kResident).free() - freed;
  std::vector<base::BlockId> evictions;
  const auto short_of = [&] { return static_cast<std::int64_t>(evictions.size()) < needed; };
  for (auto rank = controller.cached.begin(); short_of() && rank != controller.cached.end();
       ++rank) {
    if (references(rank->block) == 0) evictions.push_back(rank->block);
  }
  if (!short_of()) return evictions;

  std::vector<EvictionRank> added;
  for (const auto& [id, delta] : reference_deltas) {
    const Block& block = controller.block(id);
    if (block.references == 0 || block.references + delta != 0 || !block.indexed) continue;
    added.push_back({.stamp = controller.epoch + 1, .depth = block.depth, .block = id});
  }
  std::ranges::sort(added, [](const auto& a, const auto& b) { return a < b; });
  for (auto rank = added.begin(); short_of() && rank != added.end(); ++rank) {
    evictions.push_back(rank->block);
  }
  HS_CHECK(!short_of());
  return evictions;
}

PlanBuilder LifecycleController::plan() const {
  return PlanBuilder(std::make_unique<PlanBuilder::State>(*state_));
}

PlanBuilder::PlanBuilder(std::unique_ptr<State> state) : state_(std::move(state)) {}
PlanBuilder::~PlanBuilder() = default;
PlanBuilder::PlanBuilder(PlanBuilder&&) noexcept = default;
PlanBuilder& PlanBuilder::operator=(PlanBuilder&&) noexcept = default;

std::int32_t PlanBuilder::available_pages() const {
  return static_cast<std::int32_t>(state_->available);
}

std::int32_t PlanBuilder::pages_missing(base::SequenceId sequence, std::int64_t tokens) const {
  const std::int64_t missing = state_->controller.pages_for(tokens) - state_->pages_held(sequence);
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(missing, 0, std::numeric_limits<std::int32_t>::max()));
}

bool PlanBuilder::admit(base::SequenceId sequence, const BlockKey& root, const PrefixMatch& match,
                        std::int64_t tokens) {
  HS_CHECK(state_->plan.epoch == state_->controller.epoch);
  HS_CHECK(!state_->known(sequence));
  state_->check_match(match, root);
  const auto matched = static_cast<std::int64_t>(match.blocks.size());
  const std::int64_t pages =
      std::max<std::int64_t>(state_->controller.pages_for(tokens) - matched, 0);
  // A cached block that the sequence uses can no longer make room for others.
  const auto pinned = std::ranges::count_if(
      match.blocks, [&](base::BlockId block) { return state_->references(block) == 0; });
  if (pages > state_->available - pinned) return false;

  for (const base::BlockId block : match.blocks) ++state_->reference_deltas[block];
  state_->available -= pinned;
  state_->holdings[sequence].pages = matched;
  state_->plan.admissions.push_back({.sequence = sequence, .root = root, .match = match});
  state_->claim(sequence, pages);
  return true;
}

bool PlanBuilder::extend(base::SequenceId sequence, std::int64_t tokens) {
  HS_CHECK(state_->plan.epoch == state_->controller.epoch);
  HS_CHECK(state_->known(sequence));
  const std::int64_t pages = std::max<std::int64_t>(
      state_->controller.pages_for(tokens) - state_->pages_held(sequence), 0);
  if (pages > state_->available) return false;
  state_->claim(sequence, pages);
  return true;
}

void PlanBuilder::release(base::SequenceId sequence) {
  HS_CHECK(state_->plan.epoch == state_->controller.epoch);
  HS_CHECK(!state_->holdings.contains(sequence));
  const SequenceTable& table = state_->controller.table(sequence);
  HS_CHECK(state_->released.insert(sequence).second);
  for (const base::BlockId block : table.blocks) {
    --state_->reference_deltas[block];
    if (state_->references(block) > 0) continue;
    ++state_->available;
    if (!state_->controller.block(block).indexed) ++state_->freed;
  }
  state_->plan.releases.push_back(sequence);
}

KvPlan PlanBuilder::finish() && {
  state_->plan.evictions = state_->choose_evictions();
  return std::move(state_->plan);
}

}  // namespace hisparse::kv
