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

// The fastest; where all are full, what nobody uses makes room for what must go.
std::optional<Tier> MovePlanner::lower_tier_with_room(const Reclaimable& candidates,
                                                      MoveReason reason) {
  if (free_in(Tier::kHost) <= 0 && free_in(Tier::kDisk) <= 0) {
    if (reason != MoveReason::kSpill) return std::nullopt;
    if (evicted_below_ == candidates.cached_below.size()) return std::nullopt;
    const base::BlockId gone = candidates.cached_below[evicted_below_++];
    plan_.evictions.push_back(gone);
    for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
      if (state_.block(gone).copy(tier) && !state_.closed(tier)) ++free_[index_of(tier)];
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
    if (std::ranges::find(plan_.evictions, id) != plan_.evictions.end()) continue;
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
  const auto is_moved = [id](const KvPlan::Move& move) { return move.block == id; };
  if (std::ranges::any_of(plan_.moves, is_moved)) return;
  const Tier from = block.location()->tier;
  const bool read_in_place = from == Tier::kHost && state_.config.host_reads == HostReads::kInPlace;
  if (from == Tier::kResident || read_in_place) return;
  Tier to = Tier::kResident;
  if (free_in(to) <= kHysteresis * watermark_) {
    if (from == Tier::kHost || free_in(Tier::kHost) <= 0) return;
    to = Tier::kHost;
  }
  --free_[index_of(to)];
  plan_.moves.push_back({.block = id, .from = from, .to = to, .reason = MoveReason::kRestore});
}

}  // namespace hisparse::kv
