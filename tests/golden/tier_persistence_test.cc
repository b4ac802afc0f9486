// Pages that an earlier process left on disk change no bit of any logit.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>

#include "tests/support/test_engine.h"

namespace hisparse::test {
namespace {

constexpr std::int32_t kPromptTokens = 300;
constexpr std::int32_t kNewTokens = 24;
constexpr std::int64_t kKept = 288;  // tokens in whole pages of 16 that may be reused
constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

// Its offset in the one file of weights, whose last byte is the last tensor's.
std::int64_t middle_of_largest_tensor(const std::string& model) {
  const auto checkpoint = format::Checkpoint::open(model);
  const std::byte* end = nullptr;
  std::span<const std::byte> largest;
  for (const format::TensorView& tensor : (*checkpoint)->tensors()) {
    end = std::max(end, tensor.bytes.data() + tensor.bytes.size());
    if (tensor.bytes.size() > largest.size()) largest = tensor.bytes;
  }
  const auto size = std::filesystem::file_size(model + "/model.safetensors");
  return static_cast<std::int64_t>(size) -
         (end - (largest.data() + static_cast<std::ptrdiff_t>(largest.size() / 2)));
}

void flip_bit(const std::string& path, std::int64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(offset);
  const int byte = file.get();
  file.seekp(offset);
  file.put(static_cast<char>(byte ^ 1));
}

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

// The cheap digest of a file does not see the middle of its tensors; what is kept must.
TEST_F(TierPersistence, PagesOfWeightsThatDifferAnywhereAreNotTaken) {
  const std::string model = folder_ + "/model";
  std::filesystem::copy(test_data("golden/data/llama3_rope"), model);
  const auto digest = [&] { return (*format::Checkpoint::open(model))->digest(); };
  const std::string before = digest();
  config::EngineSettings kept = persistent(1, 0);
  kept.model = model;
  {
    TestEngine first(kept);
    (void)first.run(1, prompt_of(kPromptTokens, 7), kNewTokens);
    wait_until_kept(first);
  }
  EXPECT_GT(TestEngine(kept).engine().stats()->kv.adopted_pages, 0);
  flip_bit(model + "/model.safetensors", middle_of_largest_tensor(model));
  ASSERT_EQ(digest(), before);
  EXPECT_EQ(TestEngine(kept).engine().stats()->kv.adopted_pages, 0);
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
