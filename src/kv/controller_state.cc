#include "kv/controller_state.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace hisparse::kv {

ControllerState::ControllerState(const ControllerConfig& configuration)
    : config(configuration),
      pools{SlotPool(configuration.resident_slots), SlotPool(configuration.host_slots),
            SlotPool(configuration.disk_slots)},
      heat({.blocks = capacity(),
            .window = configuration.heat_window,
            .replan_tokens = configuration.replan_tokens}),
      next_transfer(configuration.first_transfer) {
  HS_CHECK(config.page_tokens > 0);
  // A live block has at least one slot of its own, so this bounds the metadata.
  const std::int64_t count = capacity();
  HS_CHECK(count <= std::numeric_limits<std::int32_t>::max());
  blocks.resize(static_cast<std::size_t>(count));
  free_blocks.reserve(blocks.size());
  for (auto id = static_cast<std::int32_t>(count); id-- > 0;) {
    free_blocks.push_back(base::BlockId(id));
  }
}

std::int64_t ControllerState::capacity() const {
  std::int64_t slots = 0;
  for (const SlotPool& pool : pools) slots += pool.capacity();
  return slots;
}

bool ControllerState::closed(Tier tier) const {
  constexpr std::int32_t kMaxFailedWrites = 3;
  constexpr std::int32_t kMaxLostCopies = 32;
  return tier != Tier::kResident && (failed_writes[index_of(tier)] >= kMaxFailedWrites ||
                                     lost_copies[index_of(tier)] >= kMaxLostCopies);
}

std::int64_t ControllerState::usable_slots() const {
  std::int64_t slots = 0;
  for (const Tier tier : kAllTiers) {
    slots += pool(tier).capacity() - (closed(tier) ? pool(tier).free() : 0);
  }
  return slots;
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

std::vector<base::SequenceId> ControllerState::holders(base::BlockId id) const {
  const auto page = static_cast<std::size_t>(block(id).depth);
  std::vector<base::SequenceId> sequences;
  for (const auto& [sequence, table] : tables) {
    if (table.blocks.size() > page && table.blocks[page] == id) sequences.push_back(sequence);
  }
  std::ranges::sort(sequences);
  return sequences;
}

base::BlockId ControllerState::create_block(std::int32_t depth) {
  HS_CHECK(!free_blocks.empty());
  const base::BlockId id = free_blocks.back();
  free_blocks.pop_back();
  Block& fresh = block(id);
  HS_CHECK(!fresh.live());
  fresh.references = 1;
  fresh.depth = depth;
  heat.begin(id);
  fresh.tokens.reserve(static_cast<std::size_t>(config.page_tokens));
  fresh.copy(Tier::kResident) =
      BlockCopy{.slot = pool(Tier::kResident).take(id), .state = CopyState::kFilling};
  return id;
}

bool ControllerState::index_block(base::BlockId id, const BlockContent& content) {
  if (!index.insert(content.key, id)) return false;
  Block& full_block = block(id);
  full_block.key = content.key;
  full_block.root = content.root;
  full_block.parent = content.parent;
  full_block.indexed = true;
  full_block.published = next_publication++;
  if (content.parent.valid()) ++block(content.parent).children;
  note_persistence(id);
  return true;
}

void ControllerState::remove_from_index(base::BlockId id) {
  Block& gone = block(id);
  HS_CHECK(gone.children == 0);
  index.erase(gone.key, id);
  if (gone.parent.valid()) --block(gone.parent).children;
  gone.indexed = false;
  note_persistence(id);
}

void ControllerState::note_persistence(base::BlockId id) {
  if (config.persistence == Persistence::kOff) return;
  const Block& noted = block(id);
  if (noted.indexed && !noted.whole_in(Tier::kDisk)) {
    unpersisted.emplace(noted.published, id);
  } else {
    unpersisted.erase(noted.published);
  }
}

void ControllerState::adopt_block(const BlockContent& content, std::int32_t depth,
                                  base::SlotId slot, std::uint64_t stamp) {
  const base::BlockId id = pool(Tier::kDisk).owner(slot);
  HS_CHECK(id == free_blocks.back());
  free_blocks.pop_back();
  Block& adopted = block(id);
  adopted.depth = depth;
  adopted.stamp = stamp;
  adopted.adopted = true;
  adopted.tokens.assign(content.tokens.begin(), content.tokens.end());
  adopted.copy(Tier::kDisk) = BlockCopy{.slot = slot, .state = CopyState::kFilling};
  set_copy_state(id, Tier::kDisk, CopyState::kReady);
  heat.begin(id);
  HS_CHECK(full(adopted) && index_block(id, content));
  cached.insert(rank_of(adopted, id));
  ++totals.adopted_pages;
}

void ControllerState::give_back_copy(Block& block, Tier tier, std::vector<Location>& freed) {
  std::optional<BlockCopy>& copy = block.copy(tier);
  if (!copy) return;
  freed.push_back({.tier = tier, .slot = copy->slot});
  pool(tier).give_back(copy->slot);
  copy.reset();
}

void ControllerState::destroy_block(base::BlockId id, std::vector<Location>& freed) {
  Block& gone = block(id);
  HS_CHECK(gone.references == 0 && !gone.indexed && !gone.moving.valid());
  for (const Tier tier : kAllTiers) give_back_copy(gone, tier, freed);
  gone = Block{};
  heat.begin(id);
  free_blocks.push_back(id);
}

void ControllerState::evict(base::BlockId id, std::vector<Location>& freed) {
  HS_CHECK(cached.erase(rank_of(block(id), id)) == 1);
  ++totals.dropped_blocks;
  remove_from_index(id);
  destroy_block(id, freed);
}

void ControllerState::drop_copy(base::BlockId id, Tier tier, std::vector<Location>& freed) {
  Block& kept = block(id);
  HS_CHECK(kept.whole_in(tier) && !kept.moving.valid());
  give_back_copy(kept, tier, freed);
  HS_CHECK(kept.location() && kept.whole_in(kept.location()->tier));
  note_persistence(id);
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

void ControllerState::unreference(base::BlockId id, std::vector<Location>& freed) {
  Block& held = block(id);
  HS_CHECK(held.references > 0);
  if (--held.references > 0) return;
  if (held.indexed) {
    held.stamp = epoch;
    cached.insert(rank_of(held, id));
  } else if (!held.moving.valid()) {
    destroy_block(id, freed);
  }
}

void ControllerState::forget(base::BlockId id, std::vector<Location>& freed) {
  std::vector<base::BlockId> behind = {id};
  for (const EvictionRank& rank : cached) {
    // Walks up: a chain is as long as a prompt, and pages are lost seldom.
    for (base::BlockId at = block(rank.block).parent; at.valid(); at = block(at).parent) {
      if (at == id) {
        behind.push_back(rank.block);
        break;
      }
    }
  }
  std::ranges::sort(
      behind, [this](base::BlockId a, base::BlockId b) { return block(a).depth > block(b).depth; });
  for (const base::BlockId gone : behind) {
    HS_CHECK(cached.erase(rank_of(block(gone), gone)) == 1);
    ++totals.dropped_blocks;
    remove_from_index(gone);
    if (!block(gone).moving.valid()) destroy_block(gone, freed);
  }
}

// While `moved` is on its way to disk. A page that is in no index can be found by nobody.
std::shared_ptr<const PersistedPage> ControllerState::persisted_form(const Block& moved) const {
  const std::optional<BlockCopy>& disk = moved.copy(Tier::kDisk);
  if (config.persistence == Persistence::kOff || !moved.indexed || !disk || disk->whole()) {
    return nullptr;
  }
  return std::make_shared<PersistedPage>(
      PersistedPage{.slot = disk->slot,
                    .write = write_number(moved.moving),
                    .root = moved.root,
                    .parent = moved.parent.valid() ? block(moved.parent).key : moved.root,
                    .depth = moved.depth,
                    .tokens = moved.tokens});
}

TransferOp ControllerState::start_move(base::BlockId id, Tier from, Tier to, MoveReason reason) {
  Block& moved = block(id);
  HS_CHECK(full(moved) && moved.whole_in(from) && !moved.copy(to) && !moved.moving.valid());
  if (to == Tier::kDisk) moved.adopted = false;
  moved.moving = base::TransferId(next_transfer++);
  set_copy_state(id, from, CopyState::kDraining);
  moved.copy(to) = BlockCopy{.slot = pool(to).take(id), .state = CopyState::kFilling};
  const TransferOp op = {.id = moved.moving,
                         .block = id,
                         .from = {.tier = from, .slot = moved.copy(from)->slot},
                         .to = {.tier = to, .slot = moved.copy(to)->slot},
                         .reason = reason,
                         .persisted = persisted_form(moved)};
  in_flight.emplace(op.id, op);
  return op;
}

void ControllerState::end_move(base::TransferId id, bool filled, std::vector<Location>& freed) {
  const auto found = in_flight.find(id);
  HS_CHECK(found != in_flight.end());
  const TransferOp op = found->second;
  in_flight.erase(found);
  Block& moved = block(op.block);
  HS_CHECK(moved.moving == id);
  moved.moving = base::TransferId();
  set_copy_state(op.block, op.from.tier, CopyState::kReady);
  if (filled) {
    set_copy_state(op.block, op.to.tier, CopyState::kReady);
    failed_writes[index_of(op.to.tier)] = 0;
    ++totals.moved[index_of(op.from.tier)][index_of(op.to.tier)];
    ++totals.moved_for[static_cast<std::size_t>(op.reason)];
    if (op.reason == MoveReason::kExchange && op.to.tier < op.from.tier) ++totals.exchanged_pages;
    // Two copies below the slab take room that others may want; the next process wants one on disk.
    if (op.from.tier == Tier::kDisk && op.to.tier == Tier::kHost &&
        config.persistence == Persistence::kOff) {
      give_back_copy(moved, Tier::kDisk, freed);
    }
    note_persistence(op.block);
  } else {
    give_back_copy(moved, op.to.tier, freed);
    // The place may be bad, not the tier.
    pool(op.to.tier).use_last(op.to.slot);
    if (op.to.tier > op.from.tier) ++failed_writes[index_of(op.to.tier)];
    ++totals.failed_transfers;
  }
  if (moved.references == 0 && !moved.indexed) destroy_block(op.block, freed);
}

}  // namespace hisparse::kv
