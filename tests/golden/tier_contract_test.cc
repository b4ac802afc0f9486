// Where pages lie changes no bit of any logit: all resident against host memory, disk, and both,
// with pages that are spilled midway, matched in a lower tier, restored, preempted.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/disk_pool_file.h"
#include "tests/support/test_engine.h"
#include "tests/support/tiers.h"

namespace hisparse::test {
namespace {

constexpr std::int32_t kPromptTokens = 300;
constexpr std::int32_t kNewTokens = 24;
constexpr std::int64_t kPagesNeeded = 21;  // of 16 tokens

struct Tiers {
  const char* name;
  std::int64_t resident;  // pages
  std::int64_t host;
  std::int64_t disk;
  bool eager_mirror = false;
};

void PrintTo(const Tiers& tiers, std::ostream* out) { *out << tiers.name; }

config::EngineSettings tiered(const Tiers& tiers, std::int32_t ranks = 1) {
  config::EngineSettings tight = settings();
  tight.tensor_parallel_size = ranks;
  tight.kv_eager_mirror = tiers.eager_mirror;
  return with_tiers(tight, {tiers.resident, tiers.host, tiers.disk});
}

// The forced tiers were used.
void expect_used(const Tiers& tiers, const engine::EngineStats& stats) {
  if (tiers.host > 0) {
    EXPECT_GT(moved(stats, kv::Tier::kResident, kv::Tier::kHost), 0);
  }
  if (tiers.disk > 0) {
    EXPECT_GT(moved(stats, kv::Tier::kResident, kv::Tier::kDisk), 0);
    EXPECT_GT(stats.streamed.decode_bytes, 0);
    EXPECT_GT(stats.streamed.prefill_bytes, 0);
  }
  EXPECT_EQ(stats.preemptions, 0);
  EXPECT_EQ(stats.kv.failed_transfers, 0);
}

class TierContract : public testing::TestWithParam<Tiers> {};

TEST_P(TierContract, ASequenceThatDoesNotFitGetsTheSameBits) {
  for (std::int32_t ranks : {1, 2, 8}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    config::EngineSettings roomy = settings();
    roomy.tensor_parallel_size = ranks;
    TestEngine resident(roomy);
    const Answer expected = resident.run(1, prompt_of(kPromptTokens, 7), kNewTokens);
    config::EngineSettings tight = tiered(GetParam(), ranks);
    tight.max_num_seqs = 1;  // so that staging holds 256 tokens: each layer takes two windows
    TestEngine engine(tight);
    expect_equal(engine.run(1, prompt_of(kPromptTokens, 7), kNewTokens), expected);
    expect_used(GetParam(), *engine.engine().stats());
  }
}

TEST_P(TierContract, ABatchOfMixedStatesGetsTheSameBits) {
  constexpr std::uint64_t kRequests = 4;
  const auto prompt = [](std::uint64_t seed) {
    const auto step = static_cast<std::int32_t>(seed);
    return prompt_of(20 + 60 * step, 3 + step);
  };
  TestEngine resident(settings());
  TestEngine engine(tiered({.name = "batch",
                            .resident = GetParam().resident + 4,
                            .host = GetParam().host * 2,
                            .disk = GetParam().disk * 2,
                            .eager_mirror = GetParam().eager_mirror}));
  std::vector<engine::RequestHandle> handles;
  for (std::uint64_t seed = 0; seed < kRequests; ++seed) {
    handles.push_back(engine.submit(seed, prompt(seed), kNewTokens));
  }
  for (std::uint64_t seed = 0; seed < kRequests; ++seed) {
    expect_equal(engine.wait(seed, std::move(handles[seed])),
                 resident.run(seed, prompt(seed), kNewTokens));
  }
}

TEST_P(TierContract, APrefixIsFoundWhereItLies) {
  TestEngine resident(settings());
  const Answer expected = resident.run(1, prompt_of(kPromptTokens, 7), kNewTokens);
  TestEngine engine(tiered(GetParam()));
  expect_equal(engine.run(1, prompt_of(kPromptTokens, 7), kNewTokens), expected);
  const Answer again = engine.run(1, prompt_of(kPromptTokens, 7), kNewTokens);
  EXPECT_EQ(again.usage.cached_tokens, 288);
  expect_equal(again, expected);
  const auto stats = engine.engine().stats();
  EXPECT_GT(stats->kv.hit_pages[index_of(kv::Tier::kHost)] +
                stats->kv.hit_pages[index_of(kv::Tier::kDisk)],
            0);
}

TEST_P(TierContract, ChaosStreamsAndTaggedAddressesChangeNoBit) {
  const device::CpuDeviceOptions chaos = {.streams = device::StreamMode::kDeferred,
                                          .addresses = device::AddressMode::kTagged,
                                          .fresh = device::FreshMemory::kNaN,
                                          .isa = device::IsaChoice::kBest,
                                          .chaos_seed = 11};
  TestEngine resident(settings());
  TestEngine engine(tiered(GetParam()), chaos);
  expect_equal(engine.run(1, prompt_of(kPromptTokens, 7), kNewTokens),
               resident.run(1, prompt_of(kPromptTokens, 7), kNewTokens));
}

const Tiers kTiers[] = {
    {"Host", 4, kPagesNeeded, 0},
    {"HostEager", 4, kPagesNeeded, 0, true},
    {"Disk", 4, 0, kPagesNeeded},
    {"DiskEager", 4, 0, kPagesNeeded, true},
    {"HostAndDisk", 4, 6, kPagesNeeded - 10},
    {"OneResidentPage", 1, 5, kPagesNeeded - 5},
};

INSTANTIATE_TEST_SUITE_P(Places, TierContract, testing::ValuesIn(kTiers),
                         [](const auto& info) { return std::string(info.param.name); });

// Pages of a prompt that go bad on disk while nobody uses them: whoever matches them is computed
// again, and gets the same bits.
TEST(TierLoss, BadPagesAreComputedAgain) {
  TestEngine resident(settings());
  const Answer expected = resident.run(1, prompt_of(kPromptTokens, 7), kNewTokens);
  TestEngine engine(tiered({"loss", 4, 0, kPagesNeeded}));
  expect_equal(engine.run(1, prompt_of(kPromptTokens, 7), kNewTokens), expected);
  {
    constexpr std::int64_t kBlock = 4096;
    const DiskPoolFile file;
    for (std::int64_t at = 0; at < file.size(); at += kBlock) file.flip_bit(at);
  }
  expect_equal(engine.run(1, prompt_of(kPromptTokens, 7), kNewTokens), expected);
  EXPECT_GT(engine.engine().stats()->kv.lost_pages, 0);
  EXPECT_GT(engine.engine().stats()->recomputed_tokens, 0);
  EXPECT_EQ(engine.engine().stats()->preemptions, 0);
}

TEST(TierLedger, IsWhatTheAllocatorsHold) {
  for (std::int32_t ranks : {1, 2}) {
    TestEngine engine(tiered({"ledger", 4, 5, 6}, ranks));
    const auto stats = engine.engine().stats();
    EXPECT_EQ(stats->planned, stats->allocated);
    EXPECT_GT(stats->planned[base::MemoryOwner::kKvHost], 0);
    EXPECT_GT(stats->planned[base::MemoryOwner::kMetadata], 0);
  }
}

TEST(TierLedger, ASmallerWindowTakesLess) {
  config::EngineSettings small = tiered({"window", 4, 5, 6});
  small.kv_cache_profiling_window = 100;
  config::EngineSettings large = small;
  large.kv_cache_profiling_window = 1100;
  constexpr std::int64_t kObservationBytes = 8;
  EXPECT_EQ(plan_of(large).ledger[base::MemoryOwner::kMetadata],
            plan_of(small).ledger[base::MemoryOwner::kMetadata] + 1000 * kObservationBytes);
}

}  // namespace
}  // namespace hisparse::test
