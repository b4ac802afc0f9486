// A place on disk that never gives back what was written there: it is used last, and nobody goes
// round in circles because of it.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "base/clock.h"
#include "engine/engine_core.h"
#include "tests/sim/paged_oracle.h"
#include "tests/sim/sim_mover.h"

namespace hisparse::test {
namespace {

constexpr std::int32_t kPageTokens = 4;
constexpr std::int32_t kPromptTokens = 30;
constexpr std::int32_t kNewTokens = 10;
constexpr std::int32_t kResidentPages = 4;
constexpr std::int32_t kPagesOfOne = (kPromptTokens + kNewTokens) / kPageTokens;
const base::SlotId kBadSlot(0);  // the first to be handed out

class Engine {
 public:
  explicit Engine(std::int32_t disk_pages)
      : config_(make_config(disk_pages)),
        device_(config_.kv, config_.scheduler.max_sequences, kPagesOfOne),
        mover_(device_, random_),
        core_(config_, clock_, mover_) {
    device_.break_slot(kBadSlot);
    mover_.fail_none();  // else its first write may fail, and it is not used again
  }

  // One request, to its end. False when it takes forever.
  bool serve(std::int64_t id) {
    engine::Request request;
    for (std::int32_t i = 0; i < kPromptTokens; ++i) {
      request.prompt.push_back(static_cast<base::TokenId>((id * 7 + i) % kSimVocabulary));
    }
    request.sampling.temperature = 0.0f;
    request.sampling.max_tokens = kNewTokens;
    request.sampling.ignore_eos = true;
    tokens_ = request.prompt;
    core_.submit(base::SequenceId(id), request);
    constexpr int kTurns = 20'000;
    for (int turn = 0; turn < kTurns && !core_.idle(); ++turn) {
      if (const std::optional<sched::StepPlan> plan = core_.next_step()) {
        core_.complete(device_.run(*plan));
      }
      EXPECT_EQ(device_.contradiction(), std::nullopt);
      EXPECT_EQ(core_.controller().check_invariants(), std::nullopt);
      for (const engine::TokenEvent& event : core_.take_events()) take(event);
    }
    return core_.idle();
  }

  engine::FinishReason reason() const { return reason_; }
  std::int64_t bad_writes() const { return device_.broken_writes(); }
  kv::KvStats stats() const { return core_.controller().stats(); }

 private:
  static engine::CoreConfig make_config(std::int32_t disk_pages) {
    engine::CoreConfig config;
    config.scheduler = {.max_batched_tokens = 8, .max_sequences = 1, .max_preemptions = 2};
    config.kv = {.page_tokens = kPageTokens,
                 .resident_slots = kResidentPages,
                 .disk_slots = disk_pages,
                 .heat_window = 64,
                 .replan_tokens = 5};
    config.max_model_len = kPromptTokens + kNewTokens;
    config.vocabulary = kSimVocabulary;
    return config;
  }

  void take(const engine::TokenEvent& event) {
    if (event.token) {
      EXPECT_EQ(*event.token, next_token(tokens_));
      tokens_.push_back(*event.token);
    }
    if (event.finish) reason_ = event.finish->reason;
  }

  std::mt19937_64 random_{1};
  const engine::CoreConfig config_;
  base::VirtualClock clock_;
  PagedOracle device_;
  SimMover mover_;
  engine::EngineCore core_;
  std::vector<base::TokenId> tokens_;
  engine::FinishReason reason_ = engine::FinishReason::kError;
};

TEST(BadSlot, IsUsedLast) {
  Engine engine(3 * kPagesOfOne);
  ASSERT_TRUE(engine.serve(0));
  EXPECT_EQ(engine.reason(), engine::FinishReason::kLength);
  EXPECT_EQ(engine.bad_writes(), 1) << "it is only known once it was used";
  EXPECT_GE(engine.stats().lost_pages, 1);
  const std::int64_t lost = engine.stats().lost_pages;
  // The others do for this one.
  ASSERT_TRUE(engine.serve(1));
  EXPECT_EQ(engine.reason(), engine::FinishReason::kLength);
  EXPECT_EQ(engine.bad_writes(), 1);
  EXPECT_EQ(engine.stats().lost_pages, lost);
}

// A request that cannot do without the slot is computed again a bounded number of times; then the
// tier is closed, and the request ends, if not well.
TEST(BadSlot, WhoCannotDoWithoutItEnds) {
  Engine engine(kPagesOfOne - kResidentPages);
  ASSERT_TRUE(engine.serve(0));
  EXPECT_EQ(engine.reason(), engine::FinishReason::kError);
  EXPECT_GT(engine.bad_writes(), 1);
  EXPECT_LE(engine.stats().lost_pages, 33);
  EXPECT_TRUE(engine.stats().tier(kv::Tier::kDisk).closed);
}

}  // namespace
}  // namespace hisparse::test
