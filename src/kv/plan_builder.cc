#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "kv/controller_state.h"
#include "kv/lifecycle_controller.h"
#include "kv/move_planner.h"
#include "kv/reclaim.h"

namespace hisparse::kv {

// An overlay over the controller's state: what commit() of the plan so far would change.
struct PlanBuilder::State {
  explicit State(const ControllerState& base);

  // What admit() or extend() gave a sequence.
  struct Holding {
    std::int64_t pages = 0;             // in all, with those it has in the controller
    std::int64_t reserved = 0;          // pages in all that it may have
    std::optional<std::size_t> growth;  // its entry in plan.growths
  };

  bool known(base::SequenceId sequence) const {
    if (holdings.contains(sequence)) return true;
    return controller.tables.contains(sequence) && !released.contains(sequence);
  }
  Holding holding(base::SequenceId sequence) const;
  std::int32_t references(base::BlockId block) const {
    const auto delta = reference_deltas.find(block);
    return controller.block(block).references +
           (delta == reference_deltas.end() ? 0 : delta->second);
  }

  void check_match(const PrefixMatch& match, const BlockKey& root) const;
  void claim(base::SequenceId sequence, std::int64_t pages);
  void take_from(base::BlockId block);
  std::vector<base::BlockId> newly_cached() const;
  const Reclaimable& reclaimable() const;

  // Slots of the resident tier that the plan may still take.
  std::int64_t free_slots() const { return controller.pool(Tier::kResident).free() + freed; }
  std::int64_t slots_left() const;
  bool claims_hold() const;
  bool room_can_be_made() const;
  void choose_victims();

  const ControllerState& controller;
  std::unordered_map<base::BlockId, std::int32_t> reference_deltas;
  std::unordered_map<base::SequenceId, Holding> holdings;
  std::unordered_set<base::SequenceId> released;
  std::int64_t available;    // pages over all tiers
  std::int64_t claimed = 0;  // resident slots
  std::int64_t freed = 0;    // resident slots of released pages that are in no index
  std::int64_t put_off = 0;  // resident slots that somebody asked for and has to wait for
  mutable std::optional<Reclaimable> found;  // empty: the overlay has changed since
  KvPlan plan;
};

PlanBuilder::State::State(const ControllerState& base) : controller(base) {
  plan.epoch = base.epoch;
  available = base.usable_slots() -
              static_cast<std::int64_t>(base.blocks.size() - base.free_blocks.size()) +
              static_cast<std::int64_t>(base.cached.size());
  for (const auto& [sequence, table] : base.tables) available -= table.pages_to_come();
}

PlanBuilder::State::Holding PlanBuilder::State::holding(base::SequenceId sequence) const {
  const auto held = holdings.find(sequence);
  if (held != holdings.end()) return held->second;
  if (!known(sequence)) return {};
  const SequenceTable& table = controller.table(sequence);
  const auto pages = static_cast<std::int64_t>(table.blocks.size());
  return {.pages = pages, .reserved = pages + table.pages_to_come(), .growth = std::nullopt};
}

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

// Also with no pages: the sequence counts as part of the plan from then on.
void PlanBuilder::State::claim(base::SequenceId sequence, std::int64_t pages) {
  Holding& held = holdings.try_emplace(sequence, holding(sequence)).first->second;
  const std::int64_t beyond = std::max<std::int64_t>(0, held.pages + pages - held.reserved);
  held.pages += pages;
  held.reserved += beyond;
  available -= beyond;
  claimed += pages;
  if (pages == 0) return;
  if (!held.growth) {
    held.growth = plan.growths.size();
    plan.growths.push_back({.sequence = sequence, .new_pages = 0});
  }
  plan.growths[*held.growth].new_pages += static_cast<std::int32_t>(pages);
}

// One reference of a released sequence.
void PlanBuilder::State::take_from(base::BlockId id) {
  --reference_deltas[id];
  if (references(id) > 0) return;
  ++available;
  const Block& block = controller.block(id);
  // A transfer holds its slots until it is over.
  if (!block.indexed && !block.moving.valid() && block.copy(Tier::kResident)) ++freed;
}

// Blocks that the plan's releases leave without references, in the order in which they go.
std::vector<base::BlockId> PlanBuilder::State::newly_cached() const {
  std::vector<EvictionRank> added;
  for (const auto& [id, delta] : reference_deltas) {
    const Block& block = controller.block(id);
    if (block.references == 0 || block.references + delta != 0 || !block.indexed) continue;
    added.push_back({.stamp = controller.epoch + 1, .depth = block.depth, .block = id});
  }
  std::ranges::sort(added, [](const auto& a, const auto& b) { return a < b; });
  std::vector<base::BlockId> blocks;
  for (const EvictionRank& rank : added) blocks.push_back(rank.block);
  return blocks;
}

// Looked for only when the free slots do not do.
const Reclaimable& PlanBuilder::State::reclaimable() const {
  if (!found) {
    found = find_reclaimable(
        controller, [this](base::BlockId id) { return references(id); }, newly_cached());
  }
  return *found;
}

std::int64_t PlanBuilder::State::slots_left() const {
  const Reclaimable& candidates = reclaimable();
  const std::size_t given_up = candidates.lower_room() == 0 ? candidates.cached_resident.size() : 0;
  return free_slots() + static_cast<std::int64_t>(candidates.clean.size() + given_up) - claimed;
}

// Slots can be found for what was claimed.
bool PlanBuilder::State::claims_hold() const {
  if (claimed <= free_slots()) return true;
  const Reclaimable& candidates = reclaimable();
  return claimed - free_slots() <=
         static_cast<std::int64_t>(candidates.clean.size() + candidates.cached_resident.size());
}

bool PlanBuilder::State::room_can_be_made() const {
  const Reclaimable& candidates = reclaimable();
  return !controller.in_flight.empty() ||
         (!candidates.dirty.empty() && candidates.lower_room() > 0);
}

// What goes for the slots that were claimed, and what is copied for those that were wanted.
void PlanBuilder::State::choose_victims() {
  const std::int64_t short_of = claimed - free_slots();
  MovePlanner planner(controller, plan, std::max<std::int64_t>(0, -short_of));
  if (short_of > 0) {
    const Reclaimable& candidates = reclaimable();
    const auto drops =
        std::min<std::int64_t>(short_of, static_cast<std::int64_t>(candidates.clean.size()));
    plan.drops.assign(candidates.clean.begin(), candidates.clean.begin() + drops);
    HS_CHECK(claims_hold());
    plan.evictions.assign(candidates.cached_resident.begin(),
                          candidates.cached_resident.begin() + (short_of - drops));
  }
  if (controller.any_closed()) {
    const std::vector<base::BlockId>& gone = reclaimable().worthless;
    plan.evictions.insert(plan.evictions.begin(), gone.begin(), gone.end());
  }
  const std::int64_t wanted =
      put_off == 0 ? 0
                   : std::max<std::int64_t>(0, put_off - std::max<std::int64_t>(0, slots_left()));
  if (planner.wants_to_copy_down(wanted)) planner.copy_down(reclaimable(), wanted);
  planner.bring_back();
  // Not beside somebody who waits for a slot: exchanges take none, but transfers.
  if (put_off == 0 && planner.wants_to_exchange()) planner.exchange(reclaimable());
  planner.persist();
}

PlanBuilder LifecycleController::plan() const {
  return PlanBuilder(std::make_unique<PlanBuilder::State>(*state_));
}

PlanBuilder::PlanBuilder(std::unique_ptr<State> state) : state_(std::move(state)) {}
PlanBuilder::~PlanBuilder() = default;
PlanBuilder::PlanBuilder(PlanBuilder&&) noexcept = default;
PlanBuilder& PlanBuilder::operator=(PlanBuilder&&) noexcept = default;

std::int64_t PlanBuilder::available_pages() const { return state_->available; }

std::int64_t PlanBuilder::pages_missing(base::SequenceId sequence, std::int64_t tokens) const {
  const State::Holding held = state_->holding(sequence);
  return std::max<std::int64_t>(
      0, state_->controller.pages_for(tokens) - std::max(held.pages, held.reserved));
}

bool PlanBuilder::admit(base::SequenceId sequence, const BlockKey& root, const PrefixMatch& match,
                        std::int64_t tokens) {
  State& state = *state_;
  HS_CHECK(state.plan.epoch == state.controller.epoch);
  HS_CHECK(!state.known(sequence));
  state.check_match(match, root);
  const auto matched = static_cast<std::int64_t>(match.blocks.size());
  const std::int64_t reserved = std::max(state.controller.pages_for(tokens), matched);
  // A cached block that the sequence uses can no longer make room for others.
  const auto pinned = std::ranges::count_if(
      match.blocks, [&](base::BlockId block) { return state.references(block) == 0; });
  if (reserved - matched + pinned > state.available) return false;

  for (const base::BlockId block : match.blocks) ++state.reference_deltas[block];
  state.found.reset();
  if (!state.claims_hold()) {
    // What the plan has given out already counted on giving up these pages.
    for (const base::BlockId block : match.blocks) --state.reference_deltas[block];
    state.found.reset();
    return false;
  }
  state.available -= reserved - matched + pinned;
  state.holdings[sequence] = {.pages = matched, .reserved = reserved, .growth = std::nullopt};
  state.plan.admissions.push_back(
      {.sequence = sequence, .root = root, .match = match, .reserved_pages = reserved});
  return true;
}

Grant PlanBuilder::extend(base::SequenceId sequence, std::int64_t tokens) {
  State& state = *state_;
  HS_CHECK(state.plan.epoch == state.controller.epoch);
  HS_CHECK(state.known(sequence));
  const State::Holding held = state.holding(sequence);
  const std::int64_t pages =
      std::max<std::int64_t>(0, state.controller.pages_for(tokens) - held.pages);
  const std::int64_t beyond = std::max<std::int64_t>(0, held.pages + pages - held.reserved);
  if (beyond > 0 && beyond > state.available) return Grant::kNoRoom;
  if (pages > 0 && pages > state.free_slots() - state.claimed && pages > state.slots_left()) {
    if (!state.room_can_be_made()) return Grant::kNoSlot;
    state.put_off += pages;
    return Grant::kLater;
  }
  state.claim(sequence, pages);
  return Grant::kNow;
}

std::int64_t PlanBuilder::tokens_with_room(base::SequenceId sequence, std::int64_t tokens) const {
  const State& state = *state_;
  const State::Holding held = state.holding(sequence);
  const std::int64_t wanted =
      std::max<std::int64_t>(0, state.controller.pages_for(tokens) - held.pages);
  // Less than nothing is available when a tier has been closed.
  const std::int64_t logical = std::max<std::int64_t>(0, held.reserved - held.pages) +
                               std::max<std::int64_t>(0, state.available);
  std::int64_t pages = std::min(wanted, logical);
  if (pages > 0 && pages > state.free_slots() - state.claimed) {
    pages = std::clamp<std::int64_t>(state.slots_left(), 0, pages);
  }
  return std::min(tokens, (held.pages + pages) * state.controller.config.page_tokens);
}

bool PlanBuilder::release_helps(base::SequenceId sequence, Grant missing) const {
  const State& state = *state_;
  const SequenceTable& table = state.controller.table(sequence);
  const bool any_page = missing == Grant::kNoRoom || state.reclaimable().lower_room() == 0;
  if (any_page && table.pages_to_come() > 0) return true;
  return std::ranges::any_of(table.blocks, [&](base::BlockId id) {
    const bool resident = state.controller.block(id).copy(Tier::kResident).has_value();
    return state.references(id) == 1 && (any_page || resident);
  });
}

void PlanBuilder::release(base::SequenceId sequence) {
  State& state = *state_;
  HS_CHECK(state.plan.epoch == state.controller.epoch);
  HS_CHECK(!state.holdings.contains(sequence));
  const SequenceTable& table = state.controller.table(sequence);
  HS_CHECK(state.released.insert(sequence).second);
  for (const base::BlockId block : table.blocks) state.take_from(block);
  state.found.reset();
  state.available += table.pages_to_come();
  state.plan.releases.push_back(sequence);
}

KvPlan PlanBuilder::finish() && {
  state_->choose_victims();
  return std::move(state_->plan);
}

}  // namespace hisparse::kv
