// Heat by itself: the ring, decay, levels, and its bytes.
#include "kv/heat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace hisparse::kv {
namespace {

using base::BlockId;

constexpr std::int64_t kReplanTokens = 10;

Heat heat_of(std::int64_t window) {
  return Heat({.blocks = 4, .window = window, .replan_tokens = kReplanTokens});
}

TEST(Heat, IsWhatWasObservedOnceTheNextReplanHasTakenIt) {
  Heat heat = heat_of(8);
  heat.observe(BlockId(1), 0.5f);
  heat.observe(BlockId(1), 0.25f);
  EXPECT_EQ(heat.computed(kReplanTokens - 1), std::nullopt);
  EXPECT_EQ(heat.heat(BlockId(1)), 0.0f) << "plans see the same until then";
  const std::optional<Replan> replan = heat.computed(1);
  ASSERT_TRUE(replan);
  EXPECT_EQ(replan->observations, 2);
  EXPECT_EQ(replan->lost, 0);
  EXPECT_EQ(heat.heat(BlockId(1)), 0.75f);
  EXPECT_EQ(heat.heat(BlockId(2)), 0.0f);
  EXPECT_EQ(heat.touched(BlockId(1)), kReplanTokens);
  EXPECT_EQ(heat.waiting(), 0);
}

TEST(Heat, IsAMeanInWhichAReplanCountsHalfAfterItsHalfLife) {
  const std::vector<float> masses = {1.0f, 0.0f,  0.25f, 0.0f, 0.0f, 0.5f,
                                     0.0f, 0.75f, 0.0f,  0.0f, 0.0f, 0.125f};
  Heat heat = heat_of(8);
  double sum = 0.0, weights = 0.0;
  for (const float mass : masses) {
    if (mass > 0.0f) heat.observe(BlockId(0), mass);
    heat.computed(kReplanTokens);
    const double left = std::exp2(-1.0 / Heat::kHalfLife);
    sum = sum * left + static_cast<double>(mass);
    weights = weights * left + 1.0;
    EXPECT_NEAR(heat.heat(BlockId(0)), sum / weights, 1e-5);
  }
  for (int replan = 0; replan < 1000; ++replan) heat.computed(kReplanTokens);
  EXPECT_EQ(heat.heat(BlockId(0)), 0.0f);
}

TEST(Heat, ANewPageIsNotColderThanAnOldOneThatGetsAsMuch) {
  Heat heat = heat_of(8);
  for (int replan = 0; replan < 20; ++replan) {
    heat.observe(BlockId(0), 0.25f);
    if (replan == 18) heat.begin(BlockId(1));
    if (replan >= 18) heat.observe(BlockId(1), 0.25f);
    heat.computed(kReplanTokens);
  }
  EXPECT_NEAR(heat.heat(BlockId(0)), 0.25f, 1e-5);
  EXPECT_NEAR(heat.heat(BlockId(1)), 0.25f, 1e-5);
}

TEST(Heat, WhatFallsOutOfTheRingIsLostAndCounted) {
  Heat heat = heat_of(3);
  heat.observe(BlockId(0), 0.5f);
  for (int i = 0; i < 3; ++i) heat.observe(BlockId(1), 0.125f);
  EXPECT_EQ(heat.lost(), 1);
  EXPECT_EQ(heat.waiting(), 3);
  const std::optional<Replan> replan = heat.computed(kReplanTokens);
  ASSERT_TRUE(replan);
  EXPECT_EQ(replan->lost, 1);
  EXPECT_EQ(replan->observations, 3);
  EXPECT_EQ(heat.heat(BlockId(0)), 0.0f);
  EXPECT_EQ(heat.heat(BlockId(1)), 0.375f);
  EXPECT_EQ(heat.computed(kReplanTokens)->lost, 0) << "each is told once";
}

TEST(Heat, NewContentIsColdWhateverTheRingStillHolds) {
  Heat heat = heat_of(8);
  heat.observe(BlockId(0), 1.0f);
  heat.computed(kReplanTokens);
  heat.observe(BlockId(0), 1.0f);
  heat.begin(BlockId(0));
  EXPECT_EQ(heat.heat(BlockId(0)), 0.0f);
  heat.observe(BlockId(0), 0.125f);
  heat.computed(kReplanTokens);
  EXPECT_EQ(heat.heat(BlockId(0)), 0.125f);
}

TEST(Heat, WhatIsNoShareCountsForNothing) {
  Heat heat = heat_of(8);
  for (const float mass : {std::numeric_limits<float>::quiet_NaN(), -0.5f, 1.5f,
                           std::numeric_limits<float>::infinity()}) {
    heat.observe(BlockId(0), mass);
  }
  EXPECT_EQ(heat.computed(kReplanTokens)->observations, 4);
  EXPECT_EQ(heat.heat(BlockId(0)), 0.0f);
}

TEST(Heat, LevelsAreStepsOfAFactorOfTwo) {
  Heat heat = heat_of(8);
  heat.observe(BlockId(0), 0.5f);
  heat.observe(BlockId(1), 0.9f);
  heat.observe(BlockId(2), 1.0f);
  heat.computed(kReplanTokens);
  EXPECT_EQ(heat.level(BlockId(0)), heat.level(BlockId(1)));
  EXPECT_EQ(heat.level(BlockId(2)), heat.level(BlockId(1)) + 1);
  EXPECT_EQ(heat.level(BlockId(3)), 0);
}

TEST(Heat, IsOffWithoutAWindow) {
  for (Heat heat : {Heat(), heat_of(0)}) {
    EXPECT_FALSE(heat.on());
    heat.begin(BlockId(0));
    heat.observe(BlockId(0), 1.0f);
    EXPECT_EQ(heat.computed(1000), std::nullopt);
    EXPECT_EQ(heat.heat(BlockId(0)), 0.0f);
    EXPECT_EQ(heat.level(BlockId(0)), 0);
    EXPECT_EQ(heat.observations(), 0);
    EXPECT_EQ(heat.bytes(), 0);
  }
}

TEST(Heat, HoldsTheBytesThatItStatesWhateverHappens) {
  const Heat::Options options = {.blocks = 4, .window = 8, .replan_tokens = kReplanTokens};
  Heat heat(options);
  EXPECT_EQ(heat.bytes(), Heat::bytes(options));
  for (int i = 0; i < 1000; ++i) {
    heat.observe(BlockId(i % 4), 0.5f);
    heat.begin(BlockId(i % 3));
    heat.computed(3);
  }
  EXPECT_EQ(heat.bytes(), Heat::bytes(options));
  EXPECT_GT(heat.bytes(), 0);
}

}  // namespace
}  // namespace hisparse::kv
