// What can happen to the pages of a request, each forced and proved by counters; in all of them the
// logits and tokens of every request are, bit for bit, those of a run in which everything is
// resident. Over any model: pages of 16 tokens, prompts of 100.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/test_engine.h"
#include "tests/support/tiers.h"

namespace hisparse::test {

class TierScenarios final {
 public:
  // Long enough for whatever goes on beside the steps to be over before the answer is.
  static constexpr std::int32_t kManyTokens = 200;
  // Still enough for every counter: answers outgrow all tiers where they must.
  static constexpr std::int32_t kFewerTokens = 160;

  // `base` names the model and the number of ranks. Long answers have `many_tokens`.
  explicit TierScenarios(config::EngineSettings base, std::int32_t many_tokens = kManyTokens)
      : base_(std::move(base)), many_tokens_(many_tokens), resident_(base_) {}

  void nothing_moves_while_pages_fit();
  void every_page_through_host();
  void every_page_through_disk();
  void spilled_while_generating();
  void restored_prefix();
  void restored_when_others_end();
  void preempted_and_restored();
  void preempted_and_recomputed();
  void heat_on_and_off();
  void batch_of_mixed_states();

 private:
  static constexpr std::int32_t kPromptTokens = 100;
  static constexpr std::int32_t kNewTokens = 24;
  static constexpr std::int64_t kPages = 8;  // for prompt and answer

  static std::vector<base::TokenId> prompt(std::uint64_t seed,
                                           std::int32_t tokens = kPromptTokens) {
    return prompt_of(tokens, 3 + static_cast<std::int32_t>(seed));
  }
  // Re-planned at every other token, each row observed at each.
  config::EngineSettings tiered(const TierPages& pages) const {
    config::EngineSettings tight = with_tiers(base_, pages);
    tight.kv_replan_tokens = 2;
    return tight;
  }
  // As in the resident run.
  void expect_same(std::uint64_t seed, const Answer& answer, std::int32_t prompt_tokens,
                   std::int32_t new_tokens) {
    SCOPED_TRACE("request " + std::to_string(seed));
    expect_equal(answer, resident_.run(seed, prompt(seed, prompt_tokens), new_tokens));
  }
  void run_alone(TestEngine& engine, std::uint64_t seed, std::int32_t new_tokens = kNewTokens) {
    expect_same(seed, engine.run(seed, prompt(seed), new_tokens), kPromptTokens, new_tokens);
  }
  // All at the same time.
  void run_together(TestEngine& engine, std::uint64_t requests, std::int32_t prompt_tokens,
                    std::int32_t new_tokens) {
    std::vector<engine::RequestHandle> handles;
    for (std::uint64_t seed = 0; seed < requests; ++seed) {
      handles.push_back(engine.submit(seed, prompt(seed, prompt_tokens), new_tokens));
    }
    for (std::uint64_t seed = 0; seed < requests; ++seed) {
      expect_same(seed, engine.wait(seed, std::move(handles[seed])), prompt_tokens, new_tokens);
    }
  }

  const config::EngineSettings base_;
  const std::int32_t many_tokens_;
  TestEngine resident_;
};

inline void TierScenarios::nothing_moves_while_pages_fit() {
  TestEngine engine(tiered({.resident = 4 * kPages, .host = kPages, .disk = kPages}));
  run_alone(engine, 1);
  const auto stats = engine.engine().stats();
  EXPECT_EQ(moved_at_all(*stats), 0);
  EXPECT_EQ(stats->streamed.bytes(), 0);
}

inline void TierScenarios::every_page_through_host() {
  config::EngineSettings eager = tiered({.resident = 4, .host = 20});
  eager.kv_eager_mirror = true;
  TestEngine engine(eager);
  run_alone(engine, 1, many_tokens_);
  EXPECT_GE(moved(*engine.engine().stats(), kv::Tier::kResident, kv::Tier::kHost), 15);
}

inline void TierScenarios::every_page_through_disk() {
  config::EngineSettings eager = tiered({.resident = 4, .host = 0, .disk = 20});
  eager.kv_eager_mirror = true;
  TestEngine engine(eager);
  run_alone(engine, 1, many_tokens_);
  const auto stats = engine.engine().stats();
  EXPECT_GE(moved(*stats, kv::Tier::kResident, kv::Tier::kDisk), 15);
  EXPECT_GT(stats->streamed.decode_bytes, 0);
  EXPECT_GT(stats->streamed.prefill_bytes, 0);
}

// The prompt fits; what comes behind it does not.
inline void TierScenarios::spilled_while_generating() {
  TestEngine engine(tiered({.resident = kPages - 1, .host = 1, .disk = 4}));
  run_alone(engine, 1, 60);
  const auto stats = engine.engine().stats();
  EXPECT_EQ(stats->streamed.prefill_bytes, 0);
  EXPECT_GT(stats->streamed.decode_bytes, 0);
  EXPECT_GT(moved(*stats, kv::Tier::kResident, kv::Tier::kHost), 0);
  EXPECT_GT(moved(*stats, kv::Tier::kResident, kv::Tier::kDisk), 0);
}

// Another request has pushed the prompt's pages out; who comes back with it finds them below, and
// they come up in the place of pages that nobody uses.
inline void TierScenarios::restored_prefix() {
  TestEngine engine(tiered({.resident = kPages, .host = 0, .disk = 3 * kPages}));
  run_alone(engine, 1);
  run_alone(engine, 2);
  const std::int64_t before = moved_up(*engine.engine().stats());
  const Answer again = engine.run(1, prompt(1), many_tokens_);
  EXPECT_EQ(again.usage.cached_tokens, 96);
  expect_same(1, again, kPromptTokens, many_tokens_);
  const auto stats = engine.engine().stats();
  EXPECT_GT(stats->kv.hit_pages[index_of(kv::Tier::kDisk)], 0);
  EXPECT_GT(moved_up(*stats), before);
}

inline void TierScenarios::restored_when_others_end() {
  config::EngineSettings tight = tiered({.resident = kPages, .host = 0, .disk = 40});
  tight.enable_prefix_caching = false;
  TestEngine engine(tight);
  engine::RequestHandle longer = engine.submit(1, prompt(1), many_tokens_);
  engine::RequestHandle shorter = engine.submit(2, prompt(2, 250), 4);
  expect_same(2, engine.wait(2, std::move(shorter)), 250, 4);
  expect_same(1, engine.wait(1, std::move(longer)), kPromptTokens, many_tokens_);
  const auto stats = engine.engine().stats();
  EXPECT_GT(moved_up(*stats), 0);
  EXPECT_EQ(stats->preemptions, 0);
}

// Each grows to 14 pages, and all tiers together have 20.
inline void TierScenarios::preempted_and_restored() {
  TestEngine engine(tiered({.resident = 10, .host = 0, .disk = 10}));
  run_together(engine, 2, 20, many_tokens_);
  const auto stats = engine.engine().stats();
  EXPECT_GT(stats->preemptions, 0);
  EXPECT_GT(stats->kv.hit_tokens, 0) << "nobody shares a prompt: only who was preempted finds one";
  EXPECT_GT(moved(*stats, kv::Tier::kResident, kv::Tier::kDisk), 0);
}

inline void TierScenarios::preempted_and_recomputed() {
  config::EngineSettings tight = tiered({.resident = 10, .host = 0, .disk = 10});
  tight.enable_prefix_caching = false;
  TestEngine engine(tight);
  run_together(engine, 2, 20, many_tokens_);
  const auto stats = engine.engine().stats();
  EXPECT_GT(stats->preemptions, 0);
  EXPECT_GT(stats->recomputed_tokens, 0);
  EXPECT_GT(moved(*stats, kv::Tier::kResident, kv::Tier::kDisk), 0);
}

inline void TierScenarios::heat_on_and_off() {
  for (const std::int64_t window : {0, 4, 4096}) {
    SCOPED_TRACE("window " + std::to_string(window));
    config::EngineSettings tight = tiered({.resident = 10, .host = 0, .disk = 4 * kPages});
    tight.kv_cache_profiling_window = window;
    TestEngine engine(tight);
    engine::RequestHandle longer = engine.submit(1, prompt(1), many_tokens_);
    engine::RequestHandle shorter = engine.submit(2, prompt(2), kNewTokens);
    expect_same(2, engine.wait(2, std::move(shorter)), kPromptTokens, kNewTokens);
    expect_same(1, engine.wait(1, std::move(longer)), kPromptTokens, many_tokens_);
    const kv::KvStats kv = engine.engine().stats()->kv;
    EXPECT_EQ(kv.heat_observations > 0, window > 0);
    EXPECT_EQ(kv.heat_replans > 0, window > 0);
    EXPECT_EQ(kv.exchanged_pages > 0, window > 0);
    EXPECT_EQ(kv.heat_observations_lost > 0, window == 4);
  }
}

inline void TierScenarios::batch_of_mixed_states() {
  TestEngine engine(tiered({.resident = 12, .host = 6, .disk = 3 * kPages}));
  constexpr std::uint64_t kRequests = 4;
  const auto length = [](std::uint64_t seed) { return 20 + 40 * static_cast<std::int32_t>(seed); };
  run_alone(engine, 1);  // whose prompt the second one finds
  std::vector<engine::RequestHandle> handles;
  for (std::uint64_t seed = 0; seed < kRequests; ++seed) {
    handles.push_back(engine.submit(seed, prompt(seed, length(seed)), kNewTokens));
  }
  for (std::uint64_t seed = 0; seed < kRequests; ++seed) {
    expect_same(seed, engine.wait(seed, std::move(handles[seed])), length(seed), kNewTokens);
  }
  const auto stats = engine.engine().stats();
  EXPECT_GT(moved(*stats, kv::Tier::kResident, kv::Tier::kHost), 0);
  EXPECT_GT(moved(*stats, kv::Tier::kResident, kv::Tier::kDisk), 0);
  EXPECT_GT(stats->kv.hit_tokens, 0);
}

using TierScenario = void (TierScenarios::*)();

struct NamedTierScenario {
  const char* name;
  TierScenario run;
};

inline constexpr NamedTierScenario kTierScenarios[] = {
    {"NothingMovesWhilePagesFit", &TierScenarios::nothing_moves_while_pages_fit},
    {"EveryPageThroughHost", &TierScenarios::every_page_through_host},
    {"EveryPageThroughDisk", &TierScenarios::every_page_through_disk},
    {"SpilledWhileGenerating", &TierScenarios::spilled_while_generating},
    {"RestoredPrefix", &TierScenarios::restored_prefix},
    {"RestoredWhenOthersEnd", &TierScenarios::restored_when_others_end},
    {"PreemptedAndRestored", &TierScenarios::preempted_and_restored},
    {"PreemptedAndRecomputed", &TierScenarios::preempted_and_recomputed},
    {"HeatOnAndOff", &TierScenarios::heat_on_and_off},
    {"BatchOfMixedStates", &TierScenarios::batch_of_mixed_states},
};

inline void PrintTo(const NamedTierScenario& scenario, std::ostream* out) { *out << scenario.name; }

}  // namespace hisparse::test
