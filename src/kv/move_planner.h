// Which pages a plan copies to another tier. Internal to kv/.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kv/controller_state.h"
#include "kv/reclaim.h"

namespace hisparse::kv {

// Adds moves, and evictions that make room for them, to a plan whose claims are final. At most
// max_transfers are in flight at a time, which bounds what a failure or a stall can hold.
class MovePlanner final {
 public:
  // `free_slots`: resident slots that are left when the plan has been executed, without those of
  // clean pages.
  MovePlanner(const ControllerState& state, KvPlan& plan, std::int64_t free_slots);

  // Whether anything should be copied down: somebody waits, few slots are left, or mirroring is
  // eager. Cheap.
  bool wants_to_copy_down(std::int64_t wanted) const;
  // Makes at least `wanted` resident pages clean beyond those that are, as far as it can.
  void copy_down(const Reclaimable& candidates, std::int64_t wanted);
  // Copies pages in use up where slots stay free.
  void bring_back();
  // Copies indexed pages to disk for the next process, with half of the transfers at the most.
  // Where the disk is full, what was used longest ago makes room.
  void persist();

  // Whether hot pages below may take the place of cold resident ones. Cheap.
  bool wants_to_exchange() const;
  // Copies the hottest pages in use up, each in the place of a page that nobody uses, or of one in
  // use that is known to have less than 1 / kExchangeFactor of its heat. Who has no copy below is
  // copied down first.
  static constexpr float kExchangeFactor = 2.0f;
  void exchange(const Reclaimable& candidates);

 private:
  std::int64_t budget() const;
  std::int64_t free_in(Tier tier) const;
  bool all_resident() const;
  bool is_moved(base::BlockId id) const;
  bool is_evicted(base::BlockId id) const;
  void evict_below(base::BlockId id);
  bool drop_doubled(const Reclaimable& candidates);
  bool loses_host_copy(base::BlockId id) const;
  bool is_matched(base::BlockId id) const;
  bool make_room_in(Tier tier);
  std::optional<Tier> lower_tier_with_room(const Reclaimable& candidates, MoveReason reason);
  std::vector<base::BlockId> pages_in_use_below() const;
  bool is_below(base::BlockId id) const;
  bool room_above() const;
  void bring_back(base::BlockId id);
  bool give_way(base::BlockId victim);

  const ControllerState& state_;
  KvPlan& plan_;
  std::array<std::int64_t, kTiers> free_{};  // slots by tier, once the plan has been executed
  const std::int64_t watermark_;             // of resident slots
  std::size_t evicted_below_ = 0;            // of the candidates
  std::size_t dropped_doubled_ = 0;          // of the candidates
};

}  // namespace hisparse::kv
