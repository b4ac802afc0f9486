#include "kv/invariants.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

namespace hisparse::kv {
namespace {

using Violation = std::optional<std::string>;

std::string told(std::string_view what, std::string_view kind, std::int64_t id) {
  return std::string(what) + " (" + std::string(kind) + " " + std::to_string(id) + ")";
}

class Checker final {
 public:
  explicit Checker(const ControllerState& state) : state_(state) {}

  Violation run() {
    using Check = Violation (Checker::*)();
    for (const Check check : {&Checker::tables, &Checker::blocks, &Checker::transfers,
                              &Checker::index, &Checker::cached_set, &Checker::slots,
                              &Checker::room, &Checker::heat, &Checker::persistence}) {
      if (Violation violation = (this->*check)()) return violation;
    }
    return std::nullopt;
  }

 private:
  bool valid(base::BlockId id) const {
    return id.value() >= 0 && static_cast<std::size_t>(id.value()) < state_.blocks.size();
  }

  // A table covers what its sequence has written; pages fill one after another; an indexed page
  // follows its parent. Counts the references on the way.
  Violation tables() {
    references_.assign(state_.blocks.size(), 0);
    for (const auto& [sequence, table] : state_.tables) {
      if (Violation violation = one_table(sequence, table)) return violation;
    }
    return std::nullopt;
  }

  Violation one_table(base::SequenceId sequence, const SequenceTable& table) {
    const std::int64_t page_tokens = state_.config.page_tokens;
    const auto pages = static_cast<std::int64_t>(table.blocks.size());
    if (table.written < 0 || table.written > pages * page_tokens) {
      return told("the table does not cover the written tokens", "sequence", sequence.value());
    }
    base::BlockId parent;
    for (std::int64_t page = 0; page < pages; ++page) {
      const base::BlockId id = table.blocks[static_cast<std::size_t>(page)];
      if (!valid(id) || !state_.block(id).live()) {
        return told("a table names a dead block", "sequence", sequence.value());
      }
      const Block& block = state_.block(id);
      ++references_[static_cast<std::size_t>(id.value())];
      const std::int64_t filled =
          std::clamp<std::int64_t>(table.written - page * page_tokens, 0, page_tokens);
      if (static_cast<std::int64_t>(block.tokens.size()) != filled) {
        return told("a page does not hold what its sequence has written", "block", id.value());
      }
      if (block.depth != page) return told("depth is not the page number", "block", id.value());
      if (block.indexed && (block.parent != parent || block.root != table.root)) {
        return told("an indexed page does not follow its parent", "block", id.value());
      }
      parent = id;
    }
    return std::nullopt;
  }

  // Counts agree with the tables, nothing leaks, and states agree with contents.
  Violation blocks() {
    std::vector<bool> free(state_.blocks.size(), false);
    for (const base::BlockId id : state_.free_blocks) {
      if (!valid(id)) return told("the free list names an unknown block", "block", id.value());
      if (free[static_cast<std::size_t>(id.value())]) {
        return told("a block is free twice", "block", id.value());
      }
      free[static_cast<std::size_t>(id.value())] = true;
    }
    for (std::size_t at = 0; at < state_.blocks.size(); ++at) {
      const auto id = base::BlockId(static_cast<std::int32_t>(at));
      if (state_.blocks[at].live() == free[at]) {
        return told("a block is not either live or free", "block", id.value());
      }
      if (Violation violation = one_block(id)) return violation;
    }
    return std::nullopt;
  }

  Violation one_block(base::BlockId id) const {
    const Block& block = state_.block(id);
    if (block.references != references_[static_cast<std::size_t>(id.value())]) {
      return told("references do not equal the tables that hold the block", "block", id.value());
    }
    if (!block.live()) {
      if (block.indexed) return told("a dead block is indexed", "block", id.value());
      return std::nullopt;
    }
    // Until it is indexed, its one sequence is the live producer of its filling copy; when that has
    // gone, a transfer may still hold it.
    if (!block.indexed && block.references != 1 &&
        !(block.references == 0 && block.moving.valid())) {
      return told("a private block is not held by exactly one sequence", "block", id.value());
    }
    return state_.full(block) ? full_copies(id) : partial_copies(id);
  }

  Violation partial_copies(base::BlockId id) const {
    const Block& block = state_.block(id);
    const std::optional<BlockCopy>& resident = block.copy(Tier::kResident);
    const bool alone = !block.copy(Tier::kHost) && !block.copy(Tier::kDisk);
    if (resident && resident->state == CopyState::kFilling && alone && !block.moving.valid()) {
      return std::nullopt;
    }
    return told("a page that is not full is not just filling in the resident tier", "block",
                id.value());
  }

  // Whole, but for what a transfer fills; draining exactly while one reads it.
  Violation full_copies(base::BlockId id) const {
    const Block& block = state_.block(id);
    const auto moving = state_.in_flight.find(block.moving);
    bool whole = false;
    for (const Tier tier : kAllTiers) {
      const std::optional<BlockCopy>& copy = block.copy(tier);
      if (!copy) continue;
      CopyState expected = CopyState::kReady;
      if (moving != state_.in_flight.end()) {
        if (moving->second.from.tier == tier) expected = CopyState::kDraining;
        if (moving->second.to.tier == tier) expected = CopyState::kFilling;
      }
      if (copy->state != expected) {
        return told("a copy of a full page is in a wrong state", "block", id.value());
      }
      whole = whole || copy->whole();
    }
    if (!whole) return told("a full page has no whole copy", "block", id.value());
    if (state_.config.persistence == Persistence::kOff && !block.moving.valid() &&
        block.doubled()) {
      return told("a page takes room twice below the slab", "block", id.value());
    }
    return std::nullopt;
  }

  // A transfer holds its source and its destination, and each block has at most one.
  Violation transfers() {
    std::int64_t moving = 0;
    for (const Block& block : state_.blocks) moving += block.moving.valid() ? 1 : 0;
    if (moving != static_cast<std::int64_t>(state_.in_flight.size())) {
      return "the transfers in flight are not those of the blocks";
    }
    for (const auto& [id, op] : state_.in_flight) {
      if (!valid(op.block) || state_.block(op.block).moving != id) {
        return told("a transfer moves a block that does not know it", "transfer", id.value());
      }
      for (const Location& end : {op.from, op.to}) {
        const std::optional<BlockCopy>& copy = state_.block(op.block).copy(end.tier);
        if (!copy || copy->slot != end.slot) {
          return told("a transfer does not hold its slots", "transfer", id.value());
        }
      }
    }
    if (static_cast<std::int64_t>(state_.in_flight.size()) > state_.config.max_transfers) {
      return "more transfers are in flight than may be";
    }
    return std::nullopt;
  }

  // What is promised to sequences fits.
  Violation room() {
    std::int64_t promised = 0;
    for (const auto& [sequence, table] : state_.tables) promised += table.pages_to_come();
    for (const Block& block : state_.blocks) promised += block.live() && block.references > 0;
    if (promised > state_.capacity()) return "more pages are promised than there are slots";
    return std::nullopt;
  }

  // Of fixed size; whatever was observed, a heat is a number.
  Violation heat() {
    const Heat& heat = state_.heat;
    if (heat.waiting() < 0 || heat.waiting() > heat.window()) return "the heat ring is overfull";
    if (state_.exchange_left < 0 || state_.exchange_left > state_.config.exchange_pages) {
      return "more pages are exchanged than a re-plan may";
    }
    for (std::size_t at = 0; at < state_.blocks.size(); ++at) {
      const auto id = base::BlockId(static_cast<std::int32_t>(at));
      if (!(heat.heat(id) >= 0.0f) || heat.touched(id) > heat.tokens()) {
        return told("a heat is no number, or of the future", "block", id.value());
      }
    }
    return std::nullopt;
  }

  // What is yet to be copied to disk for the next process is exactly what is not there.
  Violation persistence() {
    std::map<std::uint64_t, base::BlockId> expected;
    for (std::size_t at = 0; at < state_.blocks.size(); ++at) {
      const Block& block = state_.blocks[at];
      if (state_.config.persistence == Persistence::kOff || !block.indexed) continue;
      if (block.whole_in(Tier::kDisk)) continue;
      expected.emplace(block.published, base::BlockId(static_cast<std::int32_t>(at)));
    }
    if (expected == state_.unpersisted) return std::nullopt;
    return "the pages to be copied to disk are not those that are missing there";
  }

  // Indexed means committed, full and complete; a child in the index implies its parent.
  Violation index() {
    std::size_t indexed = 0;
    children_.assign(state_.blocks.size(), 0);
    for (const Block& block : state_.blocks) {
      if (block.indexed && valid(block.parent)) {
        ++children_[static_cast<std::size_t>(block.parent.value())];
      }
    }
    for (std::size_t at = 0; at < state_.blocks.size(); ++at) {
      if (!state_.blocks[at].indexed) continue;
      ++indexed;
      const auto id = base::BlockId(static_cast<std::int32_t>(at));
      if (Violation violation = one_indexed(id)) return violation;
    }
    if (indexed != state_.index.size()) return "the index names blocks that are not indexed";
    if (indexed > 0 && state_.config.prefix_caching == PrefixCaching::kOff) {
      return "prefix caching is off and the index is not empty";
    }
    return std::nullopt;
  }

  Violation one_indexed(base::BlockId id) const {
    const Block& block = state_.block(id);
    if (!state_.full(block)) return told("an indexed block is not full", "block", id.value());
    if (block.children != children_[static_cast<std::size_t>(id.value())]) {
      return told("children do not equal the blocks behind it", "block", id.value());
    }
    if (state_.index.at(block.key) != id) {
      return told("an indexed block is not under its key", "block", id.value());
    }
    if (!block.parent.valid()) {
      if (block.depth != 0) return told("a parent is missing", "block", id.value());
      return key_is(id, block.root);
    }
    if (!valid(block.parent)) return told("a parent is unknown", "block", id.value());
    const Block& parent = state_.block(block.parent);
    if (!parent.indexed || parent.depth + 1 != block.depth || parent.root != block.root) {
      return told("a child is in the index without its parent", "block", id.value());
    }
    if (block.references > parent.references) {
      return told("a child is held by more sequences than its parent", "block", id.value());
    }
    if (parent.references == 0 && parent.stamp < block.stamp) {
      return told("a parent would be evicted before its child", "block", id.value());
    }
    return key_is(id, parent.key);
  }

  Violation key_is(base::BlockId id, const BlockKey& before) const {
    const Block& block = state_.block(id);
    if (block.key == child_key(before, block.tokens)) return std::nullopt;
    return told("a key is not that of the content", "block", id.value());
  }

  // Cached means indexed and used by none.
  Violation cached_set() {
    std::size_t unused = 0;
    for (std::size_t at = 0; at < state_.blocks.size(); ++at) {
      const Block& block = state_.blocks[at];
      if (!block.indexed || references_[at] != 0) continue;
      ++unused;
      const auto id = base::BlockId(static_cast<std::int32_t>(at));
      if (!state_.cached.contains(rank_of(block, id))) {
        return told("an unused indexed block is not in the eviction order", "block", id.value());
      }
    }
    if (unused != state_.cached.size()) return "the eviction order names blocks that are in use";
    return std::nullopt;
  }

  // Every slot is in exactly one state and belongs to at most one copy.
  Violation slots() {
    for (const Tier tier : kAllTiers) {
      if (Violation violation = one_pool(tier)) return violation;
    }
    return std::nullopt;
  }

  Violation one_pool(Tier tier) const {
    const SlotPool& pool = state_.pool(tier);
    std::vector<std::uint8_t> owners(static_cast<std::size_t>(pool.capacity()), 0);
    const auto own = [&](base::SlotId slot) -> Violation {
      if (slot.value() < 0 || slot.value() >= pool.capacity()) return "a slot is out of range";
      if (++owners[static_cast<std::size_t>(slot.value())] == 1) return std::nullopt;
      return told("a slot is owned twice", "slot", slot.value());
    };
    std::array<std::int32_t, kCopyStates> counts{};
    for (std::size_t at = 0; at < state_.blocks.size(); ++at) {
      const std::optional<BlockCopy>& copy = state_.blocks[at].copy(tier);
      if (!copy) continue;
      if (Violation violation = own(copy->slot)) return violation;
      if (pool.owner(copy->slot) != base::BlockId(static_cast<std::int32_t>(at))) {
        return told("a slot does not know its block", "slot", copy->slot.value());
      }
      if (pool.state(copy->slot) != copy->state) {
        return told("slot and copy are in different states", "slot", copy->slot.value());
      }
      ++counts[static_cast<std::size_t>(copy->state)];
    }
    for (const base::SlotId slot : pool.free_slots()) {
      if (Violation violation = own(slot)) return violation;
      if (pool.state(slot)) return told("a free slot has a state", "slot", slot.value());
    }
    if (std::ranges::count(owners, 1) != pool.capacity()) return "a slot is lost";
    for (std::size_t state = 0; state < kCopyStates; ++state) {
      if (pool.count(static_cast<CopyState>(state)) != counts[state]) {
        return "a pool's counts are not those of its slots";
      }
    }
    return std::nullopt;
  }

  const ControllerState& state_;
  std::vector<std::int32_t> references_;  // [block id], counted from the tables
  std::vector<std::int32_t> children_;    // [block id], counted from the parents
};

}  // namespace

std::optional<std::string> find_violation(const ControllerState& state) {
  return Checker(state).run();
}

}  // namespace hisparse::kv
