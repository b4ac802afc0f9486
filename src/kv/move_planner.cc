#include "kv/move_planner.h"

#include <algorithm>

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

void MovePlanner::bring_back() {
  if (!state_.config.tiered() || budget() <= 0 || all_resident()) return;
  // Requests that start now first: they wait for these pages.
  for (const KvPlan::Admission& admission : plan_.admissions) {
    for (const base::BlockId id : admission.match.blocks) bring_back(id);
  }
  std::vector<base::SequenceId> sequences;
  for (const auto& [sequence, table] : state_.tables) sequences.push_back(sequence);
  std::ranges::sort(sequences);
  for (const base::SequenceId sequence : sequences) {
    if (std::ranges::find(plan_.releases, sequence) != plan_.releases.end()) continue;
    for (const base::BlockId id : state_.table(sequence).blocks) bring_back(id);
  }
}

void MovePlanner::bring_back(base::BlockId id) {
  const Block& block = state_.block(id);
  if (budget() <= 0 || block.moving.valid() || !state_.full(block)) return;
  if (is_moved(id) || loses_host_copy(id)) return;
  const Tier from = block.location()->tier;
  const bool read_in_place = from == Tier::kHost && state_.config.host_reads == HostReads::kInPlace;
  if (from == Tier::kResident || read_in_place) return;
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

}  // namespace hisparse::kv
