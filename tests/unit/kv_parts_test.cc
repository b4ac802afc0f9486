// The parts of the controller one by one: keys, layout, slot pool, prefix index, eviction order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "kv/block_key.h"
#include "kv/cache_group.h"
#include "kv/eviction_order.h"
#include "kv/prefix_index.h"
#include "kv/slot_pool.h"

namespace hisparse::kv {
namespace {

using Tokens = std::vector<base::TokenId>;

TEST(BlockKey, EveryFieldOfTheIdentityCounts) {
  const PrefixIdentity plain = {.cache_salt = "a", .model_digest = "b", .numerics = "c"};
  EXPECT_EQ(root_key(plain), root_key(plain));
  EXPECT_NE(root_key(plain), root_key({"x", "b", "c"}));
  EXPECT_NE(root_key(plain), root_key({"a", "x", "c"}));
  EXPECT_NE(root_key(plain), root_key({"a", "b", "x"}));
}

TEST(BlockKey, FieldsCannotRunIntoEachOther) {
  EXPECT_NE(root_key({"ab", "", ""}), root_key({"a", "b", ""}));
  EXPECT_NE(root_key({"", "ab", ""}), root_key({"", "a", "b"}));
}

TEST(BlockKey, ParentAndTokensAndTheirOrderCount) {
  const BlockKey root = root_key({});
  const Tokens tokens = {1, 2};
  const Tokens swapped = {2, 1};
  EXPECT_EQ(child_key(root, tokens), child_key(root, tokens));
  EXPECT_NE(child_key(root, tokens), child_key(root, swapped));
  EXPECT_NE(child_key(root, tokens), child_key(child_key(root, tokens), tokens));
  EXPECT_NE(child_key({.low = 1, .high = 2}, tokens), child_key({.low = 1, .high = 3}, tokens));
}

TEST(PageLayout, PutsLayersOutsidePlanesOutsideTokens) {
  const CacheGroup group = {
      .name = "attention", .layers = 3, .planes = {{"K", 8}, {"V", 4}}, .sharding = {}};
  const PageLayout layout(group, 16);
  EXPECT_EQ(layout.page_bytes(), 3 * 16 * (8 + 4));
  EXPECT_EQ(layout.offset(0, 0), 0);
  EXPECT_EQ(layout.offset(0, 1), 16 * 8);
  EXPECT_EQ(layout.offset(2, 1), 2 * 16 * (8 + 4) + 16 * 8);
}

TEST(SlotPool, HandsOutEverySlotOnceAndCountsStates) {
  SlotPool pool(3);
  EXPECT_EQ(pool.free(), 3);
  const base::SlotId a = pool.take(base::BlockId(5));
  const base::SlotId b = pool.take(base::BlockId(5));
  const base::SlotId c = pool.take(base::BlockId(5));
  EXPECT_THAT((std::vector{a.value(), b.value(), c.value()}),
              testing::UnorderedElementsAre(0, 1, 2));
  pool.set_state(a, CopyState::kReady);
  pool.set_state(b, CopyState::kDraining);
  EXPECT_EQ(pool.free(), 0);
  EXPECT_EQ(pool.count(CopyState::kFilling), 1);
  EXPECT_EQ(pool.count(CopyState::kReady), 1);
  EXPECT_EQ(pool.count(CopyState::kDraining), 1);
  pool.give_back(a);
  EXPECT_EQ(pool.count(CopyState::kReady), 0);
  EXPECT_FALSE(pool.state(a).has_value());
  EXPECT_EQ(pool.take(base::BlockId(5)), a);
}

TEST(SlotPoolDeathTest, RefusesToTakeFromAnEmptyPoolAndToFreeTwice) {
  SlotPool empty(0);
  EXPECT_DEATH(empty.take(base::BlockId(5)), "check failed");
  SlotPool pool(1);
  const base::SlotId slot = pool.take(base::BlockId(5));
  pool.give_back(slot);
  EXPECT_DEATH(pool.give_back(slot), "check failed");
  EXPECT_DEATH(pool.set_state(slot, CopyState::kReady), "check failed");
  EXPECT_DEATH(pool.give_back(base::SlotId(1)), "check failed");
  EXPECT_DEATH(pool.give_back(base::SlotId()), "check failed");
}

class PrefixIndexTest : public testing::Test {
 protected:
  PrefixIndexTest() {
    Block& block = blocks_[1];
    block.key = key_;
    block.root = root_;
    block.parent = base::BlockId(0);
    block.tokens = tokens_;
    EXPECT_TRUE(index_.insert(key_, base::BlockId(1)));
  }

  BlockContent content() const {
    return {.key = key_, .root = root_, .parent = base::BlockId(0), .tokens = tokens_};
  }

  const BlockKey root_ = {.low = 1, .high = 2};
  const BlockKey key_ = {.low = 3, .high = 4};
  const Tokens tokens_ = {5, 6};
  std::vector<Block> blocks_ = std::vector<Block>(2);
  PrefixIndex index_;
};

TEST_F(PrefixIndexTest, FindsEqualContent) {
  EXPECT_EQ(index_.find(content(), blocks_), base::BlockId(1));
}

// A forged or colliding key is not enough: each of these has the key of the block that is there.
TEST_F(PrefixIndexTest, AKeyCollisionIsNeverAHit) {
  const Tokens other_tokens = {5, 7};
  BlockContent other = content();
  other.tokens = other_tokens;
  EXPECT_FALSE(index_.find(other, blocks_).valid());
  other = content();
  other.parent = base::BlockId();
  EXPECT_FALSE(index_.find(other, blocks_).valid());
  other = content();
  other.root.high = 9;
  EXPECT_FALSE(index_.find(other, blocks_).valid());
}

TEST_F(PrefixIndexTest, ASecondBlockUnderATakenKeyIsRefused) {
  EXPECT_FALSE(index_.insert(key_, base::BlockId(0)));
  EXPECT_EQ(index_.at(key_), base::BlockId(1));
  EXPECT_EQ(index_.size(), 1U);
}

TEST_F(PrefixIndexTest, ErasesOnlyItsOwnEntry) {
  EXPECT_DEATH(index_.erase(key_, base::BlockId(0)), "check failed");
  index_.erase(key_, base::BlockId(1));
  EXPECT_FALSE(index_.find(content(), blocks_).valid());
}

TEST(EvictionOrder, OldestFirstThenDeepestThenById) {
  const EvictionRank old_shallow = {.stamp = 1, .depth = 0, .block = base::BlockId(9)};
  const EvictionRank new_deep = {.stamp = 2, .depth = 5, .block = base::BlockId(4)};
  const EvictionRank new_deep_twin = {.stamp = 2, .depth = 5, .block = base::BlockId(7)};
  const EvictionRank new_shallow = {.stamp = 2, .depth = 4, .block = base::BlockId(1)};
  const EvictionOrder order = {new_shallow, new_deep_twin, old_shallow, new_deep};
  EXPECT_THAT(order, testing::ElementsAre(old_shallow, new_deep, new_deep_twin, new_shallow));
}

}  // namespace
}  // namespace hisparse::kv
