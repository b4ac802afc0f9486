// Slot accounting of one tier.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "kv/block.h"

namespace hisparse::kv {

// Owns the numbers of a tier's slots, not their bytes. Every slot is in exactly one state, and
// free + filling + ready + draining = capacity. Hands slots out deterministically: the one given
// back last first. Engine thread.
class SlotPool final {
 public:
  explicit SlotPool(std::int32_t capacity);

  // A free slot, now filling, for a copy of `owner`. There must be one (checked).
  base::SlotId take(base::BlockId owner);
  // These, which are free and different (checked).
  void take(std::span<const std::pair<base::SlotId, base::BlockId>> claims);
  void set_state(base::SlotId slot, CopyState state);  // of a slot in use (checked)
  void give_back(base::SlotId slot);                   // of a slot in use (checked)
  // A free slot becomes the last to be handed out (nothing happens to one in use).
  void use_last(base::SlotId slot);

  std::int32_t capacity() const { return static_cast<std::int32_t>(states_.size()); }
  std::int32_t free() const { return static_cast<std::int32_t>(free_slots_.size()); }
  std::int32_t count(CopyState state) const { return counts_[static_cast<std::size_t>(state)]; }
  // Nothing for a free slot.
  std::optional<CopyState> state(base::SlotId slot) const;
  // Not valid for a free slot.
  base::BlockId owner(base::SlotId slot) const;
  std::span<const base::SlotId> free_slots() const { return free_slots_; }

 private:
  std::int32_t& count_of(CopyState state) { return counts_[static_cast<std::size_t>(state)]; }
  std::optional<CopyState>& at(base::SlotId slot);

  std::vector<std::optional<CopyState>> states_;  // [slot]
  std::vector<base::BlockId> owners_;             // [slot]
  std::vector<base::SlotId> free_slots_;          // taken from the back
  std::array<std::int32_t, kCopyStates> counts_{};
};

}  // namespace hisparse::kv
