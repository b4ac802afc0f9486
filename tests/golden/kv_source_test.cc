// Rows from a source are like any others: chunks, batches, ranks, preemption, tiers and streams
// change no bit of what comes behind them.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "base/philox.h"
#include "tests/support/test_engine.h"
#include "tests/support/tiers.h"

namespace hisparse::test {
namespace {

// f32 values that follow from everything a source is told of a row.
class SomeRows final : public engine::KvSource {
 public:
  void fill(const engine::KvRows& rows) override {
    ASSERT_EQ(rows.dtype, base::DType::kF32);
    rows_ += static_cast<std::int64_t>(rows.tokens.size());
    std::size_t at = 0;
    for (std::size_t row = 0; row < rows.tokens.size(); ++row) {
      for (std::int32_t head = 0; head < rows.kv_heads; ++head) {
        const std::uint64_t place = static_cast<std::uint64_t>(rows.first) + row;
        const std::uint64_t key =
            (place << 32) + static_cast<std::uint64_t>(rows.tokens[row] * 4096 + rows.layer * 64 +
                                                       rows.first_kv_head + head);
        for (std::int32_t i = 0; i < rows.head_dim; ++i, at += sizeof(float)) {
          put(rows.keys.data() + at, key, 2 * static_cast<std::uint64_t>(i));
          put(rows.values.data() + at, key, 2 * static_cast<std::uint64_t>(i) + 1);
        }
      }
    }
  }

  std::int64_t rows() const { return rows_; }

 private:
  static void put(std::byte* out, std::uint64_t key, std::uint64_t counter) {
    const auto value = static_cast<float>(base::philox_uniform(key, counter) - 0.5);
    std::memcpy(out, &value, sizeof(value));
  }

  std::atomic<std::int64_t> rows_ = 0;
};

constexpr std::int32_t kPromptTokens = 150;
constexpr std::int32_t kNewTokens = 40;

Answer ask(const config::EngineSettings& settings, device::CpuDeviceOptions device = {}) {
  SomeRows rows;
  TestEngine engine(settings, device, &rows);
  return engine.run(1, prompt_of(kPromptTokens, 7), kNewTokens);
}

TEST(KvSource, StandsInForEveryPromptTokenButTheLast) {
  SomeRows rows;
  TestEngine engine(settings(), {}, &rows);
  const Answer answer = engine.run(1, prompt_of(kPromptTokens, 7), kNewTokens);
  EXPECT_EQ(answer.tokens.size(), static_cast<std::size_t>(kNewTokens));
  EXPECT_EQ(rows.rows() % (kPromptTokens - 1), 0);  // once for each layer
  EXPECT_EQ(rows.rows() / (kPromptTokens - 1), engine.plan().spec.layers);
  // Other rows than the model's.
  EXPECT_NE(answer.logits,
            TestEngine(settings()).run(1, prompt_of(kPromptTokens, 7), kNewTokens).logits);
  // Its pages are found again like others.
  const Answer again = engine.run(1, prompt_of(kPromptTokens, 7), kNewTokens);
  EXPECT_EQ(again.usage.cached_tokens, kPromptTokens / 16 * 16);
  expect_equal(again, answer);
}

TEST(KvSource, ChunksAndStreamsChangeNoBit) {
  const Answer expected = ask(settings());
  for (const std::int64_t chunk : {8, 23, 500}) {
    config::EngineSettings cut = settings();
    cut.max_num_batched_tokens = chunk;
    expect_equal(ask(cut), expected);
  }
  expect_equal(ask(settings(), {.streams = device::StreamMode::kDeferred,
                                .addresses = device::AddressMode::kTagged,
                                .fresh = device::FreshMemory::kNaN,
                                .isa = device::IsaChoice::kBest,
                                .chaos_seed = 3}),
               expected);
}

TEST(KvSource, TiersChangeNoBit) {
  // The prompt alone has nine full pages.
  for (const TierPages& pages : {TierPages{.resident = 4, .host = 0, .disk = 24},
                                 TierPages{.resident = 4, .host = 4, .disk = 24}}) {
    SCOPED_TRACE(std::to_string(pages.host) + " pages of host memory");
    SomeRows rows;
    TestEngine engine(with_tiers(settings(), pages), {}, &rows);
    const auto run = [&] { return engine.run(1, prompt_of(kPromptTokens, 7), kNewTokens); };
    const Answer expected = ask(settings());
    expect_equal(run(), expected);
    const Answer again = run();
    EXPECT_GT(again.usage.cached_tokens, 0);
    expect_equal(again, expected);
    const auto stats = engine.engine().stats();
    EXPECT_GT(moved(*stats, kv::Tier::kResident, kv::Tier::kDisk), 0);
    EXPECT_EQ(moved(*stats, kv::Tier::kResident, kv::Tier::kHost) > 0, pages.host > 0);
    EXPECT_GT(stats->streamed.decode_bytes, 0);
    EXPECT_GT(stats->kv.hit_pages[index_of(kv::Tier::kDisk)], 0);
    EXPECT_EQ(stats->preemptions, 0);
  }
}

TEST(KvSource, EveryRankGetsTheRowsOfItsHeads) {
  config::EngineSettings ranks = settings();
  ranks.tensor_parallel_size = 2;
  const Answer two = ask(ranks), one = ask(settings());
  EXPECT_EQ(two.tokens, one.tokens);
  for (std::size_t i = 0; i < one.logits.size(); ++i) {
    EXPECT_LT(max_difference(two.logits[i], one.logits[i]), 1e-3);
  }
}

TEST(KvSource, APreemptedRequestGetsItsRowsAgain) {
  constexpr std::uint64_t kRequests = 4;
  const auto prompt = [](std::uint64_t seed) {
    return prompt_of(60, 3 + static_cast<std::int32_t>(seed));
  };
  SomeRows rows;
  TestEngine roomy(settings(), {}, &rows);
  config::EngineSettings tight = settings();
  tight.kv_cache_memory_bytes = 18 * roomy.plan().page_bytes;
  tight.enable_prefix_caching = false;
  TestEngine engine(tight, {}, &rows);
  std::vector<engine::RequestHandle> handles;
  for (std::uint64_t seed = 0; seed < kRequests; ++seed) {
    handles.push_back(engine.submit(seed, prompt(seed), 80));
  }
  for (std::uint64_t seed = 0; seed < kRequests; ++seed) {
    expect_equal(engine.wait(seed, std::move(handles[seed])), roomy.run(seed, prompt(seed), 80));
  }
  EXPECT_GT(engine.engine().stats()->preemptions, 0);
}

}  // namespace
}  // namespace hisparse::test
