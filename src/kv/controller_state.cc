#include "kv/controller_state.h"

#include "base/check.h"

namespace hisparse::kv {

ControllerState::ControllerState(const ControllerConfig& configuration)
    : config(configuration), pools{SlotPool(configuration.resident_slots)} {
  HS_CHECK(config.page_tokens > 0);
  // A live block has at least one slot of its own, so this bounds the metadata.
  std::int32_t capacity = 0;
  for (const SlotPool& pool : pools) capacity += pool.capacity();
  blocks.resize(static_cast<std::size_t>(capacity));
  free_blocks.reserve(blocks.size());
  for (std::int32_t id = capacity - 1; id >= 0; --id) free_blocks.push_back(base::BlockId(id));
}

std::size_t ControllerState::checked(base::BlockId id) const {
  HS_CHECK(id.value() >= 0 && static_cast<std::size_t>(id.value()) < blocks.size());
  return static_cast<std::size_t>(id.value());
}

bool ControllerState::full(const Block& block) const {
  return block.tokens.size() == static_cast<std::size_t>(config.page_tokens);
}

std::int64_t ControllerState::pages_for(std::int64_t tokens) const {
  HS_CHECK(tokens >= 0);
  return tokens / config.page_tokens + (tokens % config.page_tokens != 0 ? 1 : 0);
}

const SequenceTable& ControllerState::table(base::SequenceId sequence) const {
  const auto found = tables.find(sequence);
  HS_CHECK(found != tables.end());
  return found->second;
}

SequenceTable& ControllerState::table(base::SequenceId sequence) {
  const auto found = tables.find(sequence);
  HS_CHECK(found != tables.end());
  return found->second;
}

base::BlockId ControllerState::create_block(std::int32_t depth) {
  HS_CHECK(!free_blocks.empty());
  const base::BlockId id = free_blocks.back();
  free_blocks.pop_back();
  Block& fresh = block(id);
  HS_CHECK(!fresh.live());
  fresh.references = 1;
  fresh.depth = depth;
  fresh.tokens.reserve(static_cast<std::size_t>(config.page_tokens));
  fresh.copy(Tier::kResident) =
      BlockCopy{.slot = pool(Tier::kResident).take(), .state = CopyState::kFilling};
  return id;
}

void ControllerState::destroy_block(base::BlockId id, std::vector<base::SlotId>& freed) {
  Block& gone = block(id);
  HS_CHECK(gone.references == 0 && gone.live());
  if (gone.indexed) index.erase(gone.key, id);
  if (const std::optional<BlockCopy>& resident = gone.copy(Tier::kResident)) {
    freed.push_back(resident->slot);
  }
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    const std::optional<BlockCopy>& copy = gone.copies[tier];
    if (copy) pools[tier].give_back(copy->slot);
  }
  gone = Block{};
  free_blocks.push_back(id);
}

void ControllerState::evict(base::BlockId id, std::vector<base::SlotId>& freed) {
  HS_CHECK(cached.erase(rank_of(block(id), id)) == 1);
  ++totals.dropped_blocks;
  destroy_block(id, freed);
}

void ControllerState::set_copy_state(base::BlockId id, Tier tier, CopyState state) {
  std::optional<BlockCopy>& copy = block(id).copy(tier);
  HS_CHECK(copy.has_value());
  copy->state = state;
  pool(tier).set_state(copy->slot, state);
}

void ControllerState::reference(base::BlockId id) {
  Block& shared = block(id);
  HS_CHECK(shared.indexed);
  if (shared.references == 0) cached.erase(rank_of(shared, id));
  ++shared.references;
}

void ControllerState::unreference(base::BlockId id, std::vector<base::SlotId>& freed) {
  Block& held = block(id);
  HS_CHECK(held.references > 0);
  if (--held.references > 0) return;
  if (!held.indexed) return destroy_block(id, freed);
  held.stamp = epoch;
  cached.insert(rank_of(held, id));
}

}  // namespace hisparse::kv
