#include "kv/move_planner.h"

#include <algorithm>
#include <functional>
#include <unordered_set>
#include <utility>

namespace hisparse::kv {
namespace {

// Below one part in so many of the resident slots pages are copied down ahead of need; twice as
// many must stay free for pages to come back, so that none goes to and fro.
constexpr std::int32_t kWatermarkPart = 16;
constexpr std::int64_t kHysteresis = 2;

}  // namespace

MovePlanner::MovePlanner(const ControllerState& state, KvPlan& plan, std::int64_t free_slots)
    : state_(state),
      plan_(plan),
      free_{free_slots, state.free_slots(Tier::kHost), state.free_slots(Tier::kDisk)},
      watermark_(state.config.resident_slots / kWatermarkPart) {}

std::int64_t MovePlanner::budget() const {
  return state_.config.max_transfers - static_cast<std::int64_t>(state_.in_flight.size()) -
         static_cast<std::int64_t>(plan_.moves.size());
}

std::int64_t MovePlanner::free_in(Tier tier) const { return free_[index_of(tier)]; }

bool MovePlanner::wants_to_copy_down(std::int64_t wanted) const {
  if (!state_.config.tiered() || budget() <= 0) return false;
  return wanted > 0 || state_.config.mirroring == Mirroring::kEager ||
         free_in(Tier::kResident) < watermark_;
}

bool MovePlanner::is_moved(base::BlockId id) const {
  return std::ranges::any_of(plan_.moves,
                             [id](const KvPlan::Move& move) { return move.block == id; });
}

bool MovePlanner::is_evicted(base::BlockId id) const {
  return std::ranges::find(plan_.evictions, id) != plan_.evictions.end();
}

bool MovePlanner::loses_host_copy(base::BlockId id) const {
  return std::ranges::find(plan_.host_drops, id) != plan_.host_drops.end();
}

void MovePlanner::evict_below(base::BlockId id) {
  plan_.evictions.push_back(id);
  const bool host_has_gone = std::erase(plan_.host_drops, id) > 0;
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    if (tier == Tier::kHost && host_has_gone) continue;
    if (state_.block(id).copy(tier) && !state_.closed(tier)) ++free_[index_of(tier)];
  }
}

// Gives a host slot whose page is on disk too.
bool MovePlanner::drop_doubled(const Reclaimable& candidates) {
  while (dropped_doubled_ < candidates.doubled.size()) {
    const base::BlockId id = candidates.doubled[dropped_doubled_++];
    if (is_evicted(id) || is_moved(id) || state_.closed(Tier::kHost)) continue;
    plan_.host_drops.push_back(id);
    ++free_[index_of(Tier::kHost)];
    return true;
  }
  return false;
}

// The fastest; where all are full, second copies make room for what must go, and then what nobody
// uses.
std::optional<Tier> MovePlanner::lower_tier_with_room(const Reclaimable& candidates,
                                                      MoveReason reason) {
  if (free_in(Tier::kHost) <= 0 && free_in(Tier::kDisk) <= 0) {
    if (reason != MoveReason::kSpill) return std::nullopt;
    if (!drop_doubled(candidates)) {
      if (evicted_below_ == candidates.cached_below.size()) return std::nullopt;
      evict_below(candidates.cached_below[evicted_below_++]);
    }
  }
  return free_in(Tier::kHost) > 0 ? Tier::kHost : Tier::kDisk;
}

void MovePlanner::copy_down(const Reclaimable& candidates, std::int64_t wanted) {
  const auto clean = static_cast<std::int64_t>(candidates.clean.size()) -
                     static_cast<std::int64_t>(plan_.drops.size());
  std::int64_t ahead = std::max<std::int64_t>(0, watermark_ - free_in(Tier::kResident) - clean);
  if (state_.config.mirroring == Mirroring::kEager) {
    ahead = static_cast<std::int64_t>(candidates.dirty.size());
  }
  // What is on its way down need not be started again.
  std::int64_t copied = std::ranges::count_if(state_.in_flight, [](const auto& entry) {
    return entry.second.from.tier == Tier::kResident;
  });
  for (const base::BlockId id : candidates.dirty) {
    if (copied >= std::max(wanted, ahead) || budget() <= 0) return;
    if (is_evicted(id)) continue;
    const MoveReason reason = copied < wanted ? MoveReason::kSpill : MoveReason::kMirror;
    const std::optional<Tier> to = lower_tier_with_room(candidates, reason);
    if (!to) return;
    --free_[index_of(*to)];
    plan_.moves.push_back({.block = id, .from = Tier::kResident, .to = *to, .reason = reason});
    ++copied;
  }
}

// Every live block has at most one resident copy.
bool MovePlanner::all_resident() const {
  const auto live = static_cast<std::int64_t>(state_.blocks.size() - state_.free_blocks.size());
  const SlotPool& resident = state_.pool(Tier::kResident);
  return live == resident.capacity() - resident.free();
}

// Not resident, and not read in place where it is: it would be faster further up.
bool MovePlanner::is_below(base::BlockId id) const {
  const Block& block = state_.block(id);
  if (block.moving.valid() || !state_.full(block)) return false;
  const Tier at = block.location()->tier;
  const bool read_in_place = at == Tier::kHost && state_.config.host_reads == HostReads::kInPlace;
  return at != Tier::kResident && !read_in_place;
}

// Of running sequences, by sequence and page, each once; with heat, what is worth most first.
std::vector<base::BlockId> MovePlanner::pages_in_use_below() const {
  std::vector<base::SequenceId> sequences;
  for (const auto& [sequence, table] : state_.tables) sequences.push_back(sequence);
  std::ranges::sort(sequences);
  struct Page {
    base::BlockId block;
    std::pair<Cost, float> worth = {Cost::kInUse, 0.0f};
  };
  std::vector<Page> pages;
  std::unordered_set<base::BlockId> seen;
  const Costs costs(state_);
  for (const base::SequenceId sequence : sequences) {
    if (std::ranges::find(plan_.releases, sequence) != plan_.releases.end()) continue;
    for (const base::BlockId id : state_.table(sequence).blocks) {
      if (!is_below(id) || is_moved(id) || !seen.insert(id).second) continue;
      pages.push_back({.block = id});
      if (!state_.heat.on()) continue;
      pages.back().worth = {costs.of(id, state_.block(id).references), state_.heat.heat(id)};
    }
  }
  std::ranges::stable_sort(pages, std::ranges::greater(), &Page::worth);
  std::vector<base::BlockId> blocks;
  for (const Page& page : pages) blocks.push_back(page.block);
  return blocks;
}

bool MovePlanner::room_above() const {
  return free_in(Tier::kResident) > kHysteresis * watermark_ || free_in(Tier::kHost) > 0;
}

void MovePlanner::bring_back() {
  if (!state_.config.tiered() || budget() <= 0 || all_resident() || !room_above()) return;
  // Requests that start now first: they wait for these pages.
  for (const KvPlan::Admission& admission : plan_.admissions) {
    for (const base::BlockId id : admission.match.blocks) bring_back(id);
  }
  for (const base::BlockId id : pages_in_use_below()) bring_back(id);
}

void MovePlanner::bring_back(base::BlockId id) {
  if (budget() <= 0 || !is_below(id) || is_moved(id) || loses_host_copy(id)) return;
  const Tier from = state_.block(id).location()->tier;
  Tier to = Tier::kResident;
  if (free_in(to) <= kHysteresis * watermark_) {
    if (from == Tier::kHost) return;
    const bool may_drop = state_.config.persistence == Persistence::kOn;
    if (free_in(Tier::kHost) <= 0 && !(may_drop && make_room_in(Tier::kHost))) return;
    to = Tier::kHost;
  }
  --free_[index_of(to)];
  plan_.moves.push_back({.block = id, .from = from, .to = to, .reason = MoveReason::kRestore});
}

bool MovePlanner::is_matched(base::BlockId id) const {
  return std::ranges::any_of(plan_.admissions, [id](const KvPlan::Admission& admission) {
    return std::ranges::find(admission.match.blocks, id) != admission.match.blocks.end();
  });
}

// Of what nobody uses, oldest first: second copies in host memory, or what is only below the slab
// and on disk. Looks at few, since every step may ask.
bool MovePlanner::make_room_in(Tier tier) {
  constexpr int kLookAt = 64;
  int looked_at = 0;
  for (const EvictionRank& rank : state_.cached) {
    if (++looked_at > kLookAt) return false;
    const base::BlockId id = rank.block;
    const Block& block = state_.block(id);
    if (block.moving.valid() || is_evicted(id) || is_moved(id) || is_matched(id)) continue;
    if (tier == Tier::kHost) {
      if (!block.doubled() || loses_host_copy(id) || state_.closed(tier)) continue;
      plan_.host_drops.push_back(id);
      ++free_[index_of(tier)];
      return true;
    }
    // Children that go with this plan are before it.
    const auto gone = std::ranges::count_if(
        plan_.evictions, [&](base::BlockId child) { return state_.block(child).parent == id; });
    if (block.children > gone || !block.copy(tier) || block.copy(Tier::kResident)) continue;
    evict_below(id);
    return true;
  }
  return false;
}

void MovePlanner::persist() {
  if (state_.unpersisted.empty() || state_.closed(Tier::kDisk)) return;
  for (const auto& [published, id] : state_.unpersisted) {
    if (budget() <= state_.config.max_transfers / 2) return;
    const Block& block = state_.block(id);
    if (block.moving.valid() || is_evicted(id) || is_moved(id)) continue;
    if (free_in(Tier::kDisk) <= 0 && !make_room_in(Tier::kDisk)) return;
    --free_[index_of(Tier::kDisk)];
    plan_.moves.push_back({.block = id,
                           .from = block.whole_in(Tier::kHost) ? Tier::kHost : Tier::kResident,
                           .to = Tier::kDisk,
                           .reason = MoveReason::kMirror});
  }
}

bool MovePlanner::wants_to_exchange() const {
  return state_.exchange_left > 0 && budget() > 0 && !all_resident();
}

// Its slot is free with this plan, or with a later one. False: neither.
bool MovePlanner::give_way(base::BlockId victim) {
  if (state_.block(victim).clean()) {
    plan_.drops.push_back(victim);
    return true;
  }
  const Tier to = free_in(Tier::kHost) > 0 ? Tier::kHost : Tier::kDisk;
  if (free_in(to) <= 0) return false;
  --free_[index_of(to)];
  plan_.moves.push_back(
      {.block = victim, .from = Tier::kResident, .to = to, .reason = MoveReason::kExchange});
  return true;
}

void MovePlanner::exchange(const Reclaimable& candidates) {
  plan_.looked_for_exchange = true;
  const Heat& heat = state_.heat;
  std::int64_t left = state_.exchange_left;
  std::vector<base::BlockId> hot = pages_in_use_below();
  std::erase_if(hot, [this](base::BlockId id) { return is_moved(id) || loses_host_copy(id); });
  std::ranges::stable_sort(hot, std::ranges::greater(),
                           [&](base::BlockId id) { return heat.heat(id); });
  // For the first ones room is being made already.
  auto next = static_cast<std::size_t>(std::ranges::count_if(state_.in_flight, [](auto& entry) {
    const TransferOp& op = entry.second;
    return op.reason == MoveReason::kExchange && op.to.tier > op.from.tier;
  }));
  const auto goes_anyway = [this](base::BlockId id) {
    return is_moved(id) || is_evicted(id) ||
           std::ranges::find(plan_.drops, id) != plan_.drops.end();
  };
  for (std::size_t i = 0; i < candidates.exchangeable.size(); ++i) {
    const base::BlockId victim = candidates.exchangeable[i];
    if (next >= hot.size() || left <= 0 || budget() <= 0) return;
    const base::BlockId id = hot[next];
    const bool colder = heat.known(victim) && heat.heat(id) > kExchangeFactor * heat.heat(victim);
    if (goes_anyway(victim) || !(i < candidates.unused || colder) || !give_way(victim)) continue;
    ++next;
    --left;
    if (!state_.block(victim).clean()) continue;
    plan_.moves.push_back({.block = id,
                           .from = state_.block(id).location()->tier,
                           .to = Tier::kResident,
                           .reason = MoveReason::kExchange});
  }
}

}  // namespace hisparse::kv
