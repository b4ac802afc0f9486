// Breaks a consistent state in one way at a time and sees the checker object.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "kv/invariants.h"

namespace hisparse::kv {
namespace {

constexpr std::int32_t kPageTokens = 2;

void index_block(ControllerState& state, base::BlockId id, base::BlockId parent, BlockKey before) {
  Block& block = state.block(id);
  block.tokens = {block.depth, 7};
  state.set_copy_state(id, Tier::kResident, CopyState::kReady);
  ASSERT_TRUE(state.index_block(id, {.key = child_key(before, block.tokens),
                                     .root = {},
                                     .parent = parent,
                                     .tokens = block.tokens}));
}

// Block 0 <- block 1 are indexed and cached; block 2 <- block 3 (empty) belong to sequence 5, which
// has written one token; two slots are free.
ControllerState consistent() {
  ControllerState state(
      {.page_tokens = kPageTokens, .resident_slots = 6, .host_slots = 2, .disk_slots = 1});
  std::vector<Location> freed;
  for (const std::int32_t depth : {0, 1, 0, 1}) state.create_block(depth);
  index_block(state, base::BlockId(0), base::BlockId(), BlockKey{});
  index_block(state, base::BlockId(1), base::BlockId(0), state.block(base::BlockId(0)).key);
  state.unreference(base::BlockId(0), freed);
  state.unreference(base::BlockId(1), freed);
  state.block(base::BlockId(2)).tokens = {4};
  state.tables[base::SequenceId(5)] = {
      .root = {}, .blocks = {base::BlockId(2), base::BlockId(3)}, .written = 1};
  return state;
}

struct Damage {
  const char* told;  // a part of the violation that must be reported
  std::function<void(ControllerState&)> make;
};

Block& at(ControllerState& state, std::int32_t id) { return state.block(base::BlockId(id)); }
SequenceTable& table(ControllerState& state) { return state.table(base::SequenceId(5)); }

const std::vector<Damage>& damages() {
  static const std::vector<Damage> all = {
      {"does not cover", [](auto& s) { table(s).written = 5; }},
      {"does not cover", [](auto& s) { table(s).written = -1; }},
      {"names a dead block", [](auto& s) { table(s).blocks[1] = base::BlockId(4); }},
      {"names a dead block", [](auto& s) { table(s).blocks[1] = base::BlockId(99); }},
      {"what its sequence has written", [](auto& s) { at(s, 2).tokens.clear(); }},
      {"what its sequence has written", [](auto& s) { at(s, 3).tokens = {1}; }},
      {"depth is not", [](auto& s) { at(s, 3).depth = 2; }},
      {"does not follow its parent",
       [](auto& s) { at(s, 2).indexed = true, at(s, 2).root.low = 1; }},
      {"block is free twice", [](auto& s) { s.free_blocks.push_back(base::BlockId(4)); }},
      {"unknown block", [](auto& s) { s.free_blocks.push_back(base::BlockId(9)); }},
      {"either live or free", [](auto& s) { s.free_blocks.push_back(base::BlockId(0)); }},
      {"either live or free", [](auto& s) { s.free_blocks.pop_back(); }},
      {"references do not equal", [](auto& s) { at(s, 2).references = 2; }},
      {"references do not equal", [](auto& s) { at(s, 0).references = 1; }},
      {"dead block is indexed", [](auto& s) { at(s, 4).indexed = true; }},
      {"exactly one sequence", [](auto& s) { s.tables.clear(), at(s, 2).references = 0; }},
      {"not just filling", [](auto& s) { at(s, 2).copies[0]->state = CopyState::kReady; }},
      {"not just filling", [](auto& s) { at(s, 2).copies[1] = BlockCopy{}; }},
      {"wrong state", [](auto& s) { at(s, 0).copies[0]->state = CopyState::kFilling; }},
      {"wrong state", [](auto& s) { at(s, 0).copies[0]->state = CopyState::kDraining; }},
      {"not those of the blocks", [](auto& s) { at(s, 0).moving = base::TransferId(3); }},
      {"does not know it",
       [](auto& s) {
         (void)s.start_move(base::BlockId(0), Tier::kResident, Tier::kHost, MoveReason::kSpill);
         s.in_flight.begin()->second.block = base::BlockId(1);
       }},
      {"does not hold its slots",
       [](auto& s) {
         (void)s.start_move(base::BlockId(0), Tier::kResident, Tier::kHost, MoveReason::kSpill);
         s.in_flight.begin()->second.to.slot = base::SlotId(1);
       }},
      {"than may be",
       [](auto& s) {
         (void)s.start_move(base::BlockId(0), Tier::kResident, Tier::kHost, MoveReason::kSpill);
         s.config.max_transfers = 0;
       }},
      {"room twice",
       [](auto& s) {
         for (std::size_t tier : {1, 2}) {
           at(s, 0).copies[tier] = BlockCopy{.slot = s.pools[tier].take(base::BlockId(0))};
           s.set_copy_state(base::BlockId(0), kAllTiers[tier], CopyState::kReady);
         }
       }},
      {"missing there", [](auto& s) { s.config.persistence = Persistence::kOn; }},
      {"missing there", [](auto& s) { s.unpersisted.emplace(1, base::BlockId(0)); }},
      {"children do not equal", [](auto& s) { at(s, 0).children = 2; }},
      {"promised", [](auto& s) { table(s).reserved = 99; }},
      {"indexed block is not full", [](auto& s) { at(s, 2).indexed = true; }},
      {"not under its key", [](auto& s) { s.index.erase(at(s, 1).key, base::BlockId(1)); }},
      {"parent is missing",
       [](auto& s) { at(s, 1).parent = base::BlockId(), at(s, 0).children = 0; }},
      {"parent is unknown",
       [](auto& s) { at(s, 1).parent = base::BlockId(77), at(s, 0).children = 0; }},
      {"without its parent",
       [](auto& s) { at(s, 1).parent = base::BlockId(2), at(s, 0).children = 0; }},
      {"evicted before its child", [](auto& s) { at(s, 1).stamp = 9; }},
      {"key is not that",
       [](auto& s) {
         at(s, 1).tokens = {9, 9};
       }},
      {"key is not that",
       [](auto& s) {
         at(s, 0).tokens = {9, 9};
       }},
      {"index names blocks",
       [](auto& s) {
         (void)s.index.insert({1, 1}, base::BlockId(2));
       }},
      {"caching is off", [](auto& s) { s.config.prefix_caching = PrefixCaching::kOff; }},
      {"not in the eviction order", [](auto& s) { s.cached.erase(s.cached.begin()); }},
      {"names blocks that are in use",
       [](auto& s) {
         s.cached.insert({9, 9, base::BlockId(2)});
       }},
      {"out of range", [](auto& s) { at(s, 2).copies[0]->slot = base::SlotId(6); }},
      {"owned twice", [](auto& s) { at(s, 3).copies[0]->slot = at(s, 2).copies[0]->slot; }},
      {"know its block", [](auto& s) { at(s, 2).copies[0]->slot = at(s, 3).copies[0]->slot; }},
      {"different states",
       [](auto& s) { s.pools[0].set_state(base::SlotId(0), CopyState::kDraining); }},
      {"slot is lost", [](auto& s) { (void)s.pools[0].take(base::BlockId(4)); }},
      {"know its block",
       [](auto& s) {
         s.pools[0].give_back(at(s, 2).copies[0]->slot),
             at(s, 2).copies[0]->slot = at(s, 3).copies[0]->slot;
       }},
      {"know its block", [](auto& s) { s.pools[0].give_back(at(s, 2).copies[0]->slot); }},
  };
  return all;
}

TEST(KvInvariants, AConsistentStateHasNoViolation) {
  EXPECT_EQ(find_violation(consistent()), std::nullopt);
}

TEST(KvInvariants, EveryKindOfDamageIsToldInItsWords) {
  for (std::size_t kind = 0; kind < damages().size(); ++kind) {
    SCOPED_TRACE("damage " + std::to_string(kind));
    ControllerState state = consistent();
    damages()[kind].make(state);
    const std::optional<std::string> violation = find_violation(state);
    ASSERT_TRUE(violation.has_value()) << damages()[kind].told;
    EXPECT_THAT(*violation, testing::HasSubstr(damages()[kind].told));
  }
}

}  // namespace
}  // namespace hisparse::kv
