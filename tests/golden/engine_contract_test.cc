// The numerics contract through the whole engine: prefix hits, preemption and mixed batches change
// no bit of any logit.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/test_engine.h"

namespace hisparse::test {
namespace {

using namespace std::chrono_literals;

TEST(EngineContract, APrefixHitChangesNoBit) {
  TestEngine engine(settings());
  const Answer cold = engine.run(1, prompt_of(300, 7), 24);
  EXPECT_EQ(cold.usage.cached_tokens, 0);
  const Answer hit = engine.run(1, prompt_of(300, 7), 24);
  EXPECT_EQ(hit.usage.cached_tokens, 288);  // 18 whole pages of the 299 tokens that may be reused
  expect_equal(cold, hit);

  config::EngineSettings off = settings();
  off.enable_prefix_caching = false;
  TestEngine uncached(off);
  uncached.run(1, prompt_of(300, 7), 24);
  const Answer again = uncached.run(1, prompt_of(300, 7), 24);
  EXPECT_EQ(again.usage.cached_tokens, 0);
  expect_equal(cold, again);
}

// Eight short prompts that grow: together they need eight times ten pages at their end and get
// fourteen, so somebody is preempted all the time.
TEST(EngineContract, PreemptionAndRecomputeChangeNoBit) {
  constexpr std::uint64_t kRequests = 8;
  constexpr std::int32_t kNewTokens = 140;
  constexpr std::int64_t kPages = 14;
  const auto prompt = [](std::uint64_t seed) {
    const auto step = static_cast<std::int32_t>(seed);
    return prompt_of(10 + step, 3 + step);
  };
  std::vector<Answer> alone;
  TestEngine roomy(settings());
  for (std::uint64_t seed = 0; seed < kRequests; ++seed) {
    alone.push_back(roomy.run(seed, prompt(seed), kNewTokens));
  }
  EXPECT_EQ(roomy.engine().stats()->preemptions, 0);
  for (const bool prefix_caching : {true, false}) {
    config::EngineSettings tight = settings();
    tight.enable_prefix_caching = prefix_caching;
    tight.kv_cache_memory_bytes = kPages * roomy.plan().page_bytes;
    TestEngine engine(tight);
    std::vector<engine::RequestHandle> handles;
    for (std::uint64_t seed = 0; seed < kRequests; ++seed) {
      handles.push_back(engine.submit(seed, prompt(seed), kNewTokens));
    }
    for (std::uint64_t seed = 0; seed < kRequests; ++seed) {
      expect_equal(engine.wait(seed, std::move(handles[seed])), alone[seed]);
    }
    EXPECT_GE(engine.engine().stats()->preemptions, 5);
    EXPECT_GT(engine.engine().stats()->recomputed_tokens, 0);
  }
}

TEST(EngineContract, ABatchChangesNoBit) {
  std::vector<Answer> alone;
  TestEngine engine(settings());
  for (std::uint64_t seed = 0; seed < 8; ++seed)
    alone.push_back(engine.run(seed, prompt_of(20, 1 + static_cast<std::int32_t>(seed)), 40));
  std::vector<engine::RequestHandle> handles;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    handles.push_back(engine.submit(seed, prompt_of(20, 1 + static_cast<std::int32_t>(seed)), 40));
  }
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    expect_equal(engine.wait(seed, std::move(handles[seed])), alone[seed]);
  }
}

TEST(EngineContract, ChaosStreamsAndTaggedAddressesChangeNoBitOnAnyNumberOfRanks) {
  const device::CpuDeviceOptions chaos = {.streams = device::StreamMode::kDeferred,
                                          .addresses = device::AddressMode::kTagged,
                                          .fresh = device::FreshMemory::kNaN,
                                          .isa = device::IsaChoice::kBest,
                                          .chaos_seed = 9};
  for (std::int32_t ranks : {1, 2, 8}) {
    config::EngineSettings split = settings();
    split.tensor_parallel_size = ranks;
    TestEngine plain(split);
    TestEngine chaotic(split, chaos);
    expect_equal(chaotic.run(5, prompt_of(100, 11), 30), plain.run(5, prompt_of(100, 11), 30));
  }
}

TEST(EngineContract, TheLedgerIsWhatTheAllocatorsHold) {
  for (std::int32_t ranks : {1, 2}) {
    config::EngineSettings split = settings();
    split.tensor_parallel_size = ranks;
    TestEngine engine(split);
    const auto stats = engine.engine().stats();
    EXPECT_EQ(stats->planned, stats->allocated);
    EXPECT_EQ(stats->planned, engine.plan().ledger);
  }
}

TEST(EngineContract, ARequestThatCanNeverFitIsRefusedAtOnce) {
  config::EngineSettings tight = settings();
  tight.kv_cache_memory_bytes = 4 * TestEngine(settings()).plan().page_bytes;
  TestEngine engine(tight);
  engine::Request request;
  request.prompt = prompt_of(40, 1);
  request.sampling.max_tokens = 25;  // 64 rows: exactly four pages
  EXPECT_TRUE(engine.engine().submit(request, nullptr).ok());
  request.sampling.max_tokens = 26;
  EXPECT_EQ(engine.engine().submit(request, nullptr).status().code(),
            absl::StatusCode::kOutOfRange);
  request.sampling.max_tokens = 600;
  EXPECT_EQ(engine.engine().submit(request, nullptr).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST(EngineContract, DroppedHandlesFreeEverything) {
  TestEngine engine(settings());
  for (int round = 0; round < 20; ++round) {
    std::vector<engine::RequestHandle> handles;
    for (std::uint64_t seed = 0; seed < 6; ++seed)
      handles.push_back(engine.submit(seed, prompt_of(50, 3), 400));
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
  }
  for (int i = 0; i < 2000; ++i) {
    const auto stats = engine.engine().stats();
    if (stats->kv.referenced == 0 && stats->running == 0 && stats->waiting == 0) break;
    std::this_thread::sleep_for(5ms);
  }
  const auto stats = engine.engine().stats();
  EXPECT_EQ(stats->kv.referenced, 0);
  EXPECT_EQ(stats->running + stats->waiting, 0);
}

}  // namespace
}  // namespace hisparse::test
