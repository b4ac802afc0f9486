// Pages that an earlier process left on disk change no bit of any logit.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>

#include "tests/support/test_engine.h"

namespace hisparse::test {
namespace {

constexpr std::int32_t kPromptTokens = 300;
constexpr std::int32_t kNewTokens = 24;
constexpr std::int64_t kKept = 288;  // tokens in whole pages of 16 that may be reused
constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

class TierPersistence : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  config::EngineSettings persistent(std::int32_t ranks, std::int64_t host_pages) const {
    config::EngineSettings tiered = settings();
    tiered.tensor_parallel_size = ranks;
    tiered.kv_tiering = config::KvTiering::kHybrid;
    const engine::LaunchPlan plan = TestEngine(tiered).plan();
    tiered.kv_cache_memory_bytes = 6 * plan.page_bytes;
    // Half a page more, since it is given in GiB.
    const double pages = host_pages == 0 ? 0.0 : static_cast<double>(host_pages) + 0.5;
    tiered.swap_space = pages * static_cast<double>(plan.page_bytes) / kGibibyte;
    tiered.kv_disk_path = folder_;
    tiered.kv_disk_space = 40 * plan.disk_page_bytes;
    tiered.kv_disk_persist = true;
    return tiered;
  }
  static void wait_until_kept(TestEngine& engine) {
    while (engine.engine().stats()->kv.unpersisted > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  const std::string folder_ = testing::TempDir() + "/tier_persistence_test";
};

TEST_F(TierPersistence, TheNextProcessReadsTheSameBits) {
  for (const std::int32_t ranks : {1, 2, 8}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    config::EngineSettings roomy = settings();
    roomy.tensor_parallel_size = ranks;
    TestEngine resident(roomy);
    const Answer expected = resident.run(1, prompt_of(kPromptTokens, 7), kNewTokens);
    const Answer other = resident.run(2, prompt_of(kPromptTokens, 11), kNewTokens);
    for (const std::int64_t host_pages : {0, 10}) {
      SCOPED_TRACE(std::to_string(host_pages) + " host pages");
      SetUp();
      {
        TestEngine first(persistent(ranks, host_pages));
        expect_equal(first.run(1, prompt_of(kPromptTokens, 7), kNewTokens), expected);
        wait_until_kept(first);
      }
      TestEngine second(persistent(ranks, host_pages));
      expect_equal(second.run(2, prompt_of(kPromptTokens, 11), kNewTokens), other);
      const Answer again = second.run(1, prompt_of(kPromptTokens, 7), kNewTokens);
      expect_equal(again, expected);
      EXPECT_EQ(again.usage.cached_tokens, kKept);
      const auto stats = second.engine().stats();
      EXPECT_GE(stats->kv.adopted_pages, kKept / 16);
      EXPECT_GT(stats->kv.hit_pages[index_of(kv::Tier::kDisk)], 0);
      EXPECT_EQ(stats->kv.lost_pages, 0);
    }
  }
}

TEST_F(TierPersistence, PagesOfOtherNumericsAreNotTaken) {
  config::EngineSettings kept = persistent(1, 0);
  {
    TestEngine first(kept);
    (void)first.run(1, prompt_of(kPromptTokens, 7), kNewTokens);
    wait_until_kept(first);
  }
  kept.kv_cache_dtype = config::DTypeChoice::kBF16;
  kept.kv_disk_space *= 2;
  config::EngineSettings roomy = settings();
  roomy.kv_cache_dtype = config::DTypeChoice::kBF16;
  TestEngine resident(roomy);
  TestEngine second(kept);
  EXPECT_EQ(second.engine().stats()->kv.adopted_pages, 0);
  expect_equal(second.run(1, prompt_of(kPromptTokens, 7), kNewTokens),
               resident.run(1, prompt_of(kPromptTokens, 7), kNewTokens));
}

}  // namespace
}  // namespace hisparse::test
