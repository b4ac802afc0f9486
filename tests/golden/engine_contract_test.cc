// The numerics contract through the whole engine: prefix hits, preemption and mixed batches change
// no bit of any logit.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/launch.h"
#include "tests/support/model_rig.h"

namespace hisparse::test {
namespace {

using namespace std::chrono_literals;

// What one request got: its tokens, and the logits behind each of them.
struct Answer {
  std::vector<base::TokenId> tokens;
  std::vector<Logits> logits;
  engine::Usage usage;
  engine::FinishReason reason = engine::FinishReason::kError;
  absl::Status status;
};

// An engine over a fixture that records every sampled row's logits by the request's seed.
// Temperature 1, so that the random streams are part of what must not change.
class TestEngine {
 public:
  explicit TestEngine(config::EngineSettings settings, device::CpuDeviceOptions device = {}) {
    settings.model = test_data("golden/data/llama3_rope");
    settings.dtype = config::DTypeChoice::kF32;
    settings.threads = 2;
    options_.settings = settings;
    options_.device = device;
    options_.freed_pages = engine::FreedPages::kPoison;
    options_.token_bytes = [](base::TokenId token) { return std::to_string(token) + ","; };
    options_.observe_logits = [this](const sched::StepPlan& plan, std::span<const float> logits) {
      std::lock_guard lock(mutex_);
      const std::size_t width = logits.size() / plan.samples.size();
      for (std::size_t i = 0; i < plan.samples.size(); ++i) {
        const auto row = logits.subspan(i * width, width);
        // Requests with the same prompt and seed (dropped midway, started again) repeat their bits.
        const auto [entry, fresh] = logits_[plan.samples[i].seed].try_emplace(
            plan.samples[i].counter, Logits(row.begin(), row.end()));
        EXPECT_TRUE(fresh || std::equal(row.begin(), row.end(), entry->second.begin()));
      }
    };
    auto checkpoint = format::Checkpoint::open(settings.model);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    auto plan = engine::plan_launch(**checkpoint, options_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    auto launched = engine::launch(**checkpoint, *plan, options_);
    EXPECT_TRUE(launched.ok()) << launched.status();
    launched_ = std::move(*launched);
  }

  engine::Engine& engine() { return *launched_.engine; }
  const engine::LaunchPlan& plan() const { return launched_.plan; }

  engine::RequestHandle submit(std::uint64_t seed, std::vector<base::TokenId> prompt,
                               std::int32_t max_tokens) {
    engine::Request request;
    request.prompt = std::move(prompt);
    request.sampling.seed = seed;
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    auto handle = engine().submit(std::move(request), nullptr);
    EXPECT_TRUE(handle.ok()) << handle.status();
    return std::move(*handle);
  }

  Answer wait(std::uint64_t seed, engine::RequestHandle handle) {
    Answer answer;
    std::string text;
    for (;;) {
      std::optional<engine::OutputChunk> chunk = handle.output().wait_take(60s);
      if (!chunk) {
        ADD_FAILURE() << "no output for a minute";
        return answer;
      }
      text += chunk->text;
      answer.usage = chunk->usage;
      if (!chunk->finish) continue;
      answer.reason = chunk->finish->reason;
      answer.status = chunk->finish->status;
      break;
    }
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find(',', begin);
      answer.tokens.push_back(std::stoi(text.substr(begin, end - begin)));
      begin = end + 1;
    }
    std::lock_guard lock(mutex_);
    for (auto& [counter, logits] : logits_[seed]) answer.logits.push_back(logits);
    logits_.erase(seed);
    return answer;
  }

  Answer run(std::uint64_t seed, std::vector<base::TokenId> prompt, std::int32_t max_tokens) {
    return wait(seed, submit(seed, std::move(prompt), max_tokens));
  }

 private:
  engine::LaunchOptions options_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::map<std::uint64_t, Logits>>
      logits_;  // by seed, by counter; guarded by mutex_
  engine::LaunchedEngine launched_;
};

std::vector<base::TokenId> prompt_of(std::int32_t length, std::int32_t step) {
  std::vector<base::TokenId> tokens;
  for (std::int32_t i = 0; i < length; ++i) tokens.push_back((17 + i * step) % 500);
  return tokens;
}

config::EngineSettings settings() {
  config::EngineSettings settings;
  settings.max_model_len = 512;
  settings.max_num_seqs = 8;
  settings.max_num_batched_tokens = 48;
  settings.block_size = 16;
  return settings;
}

void expect_equal(const Answer& a, const Answer& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  ASSERT_EQ(a.logits.size(), b.logits.size());
  for (std::size_t i = 0; i < a.logits.size(); ++i)
    EXPECT_EQ(a.logits[i], b.logits[i]) << "token " << i;
}

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
