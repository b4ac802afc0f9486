#include "kv/slot_pool.h"

#include <algorithm>

#include "base/check.h"

namespace hisparse::kv {

SlotPool::SlotPool(std::int32_t capacity) {
  HS_CHECK(capacity >= 0);
  states_.resize(static_cast<std::size_t>(capacity));
  owners_.resize(states_.size());
  free_slots_.reserve(states_.size());
  for (std::int32_t slot = capacity - 1; slot >= 0; --slot) {
    free_slots_.push_back(base::SlotId(slot));
  }
}

base::SlotId SlotPool::take(base::BlockId owner) {
  HS_CHECK(!free_slots_.empty());
  const base::SlotId slot = free_slots_.back();
  free_slots_.pop_back();
  at(slot) = CopyState::kFilling;
  owners_[static_cast<std::size_t>(slot.value())] = owner;
  ++count_of(CopyState::kFilling);
  return slot;
}

void SlotPool::take(std::span<const std::pair<base::SlotId, base::BlockId>> claims) {
  for (const auto& [slot, owner] : claims) {
    HS_CHECK(!at(slot).has_value());
    at(slot) = CopyState::kFilling;
    owners_[static_cast<std::size_t>(slot.value())] = owner;
    ++count_of(CopyState::kFilling);
  }
  std::erase_if(free_slots_, [this](base::SlotId slot) { return at(slot).has_value(); });
}

void SlotPool::set_state(base::SlotId slot, CopyState state) {
  std::optional<CopyState>& current = at(slot);
  HS_CHECK(current.has_value());
  --count_of(*current);
  current = state;
  ++count_of(state);
}

void SlotPool::give_back(base::SlotId slot) {
  std::optional<CopyState>& current = at(slot);
  HS_CHECK(current.has_value());
  --count_of(*current);
  current.reset();
  owners_[static_cast<std::size_t>(slot.value())] = base::BlockId();
  free_slots_.push_back(slot);
}

void SlotPool::use_last(base::SlotId slot) {
  const auto found = std::ranges::find(free_slots_, slot);
  if (found != free_slots_.end()) std::rotate(free_slots_.begin(), found, found + 1);
}

std::optional<CopyState> SlotPool::state(base::SlotId slot) const {
  HS_CHECK(slot.value() >= 0 && slot.value() < capacity());
  return states_[static_cast<std::size_t>(slot.value())];
}

base::BlockId SlotPool::owner(base::SlotId slot) const {
  HS_CHECK(slot.value() >= 0 && slot.value() < capacity());
  return owners_[static_cast<std::size_t>(slot.value())];
}

std::optional<CopyState>& SlotPool::at(base::SlotId slot) {
  HS_CHECK(slot.value() >= 0 && slot.value() < capacity());
  return states_[static_cast<std::size_t>(slot.value())];
}

}  // namespace hisparse::kv
