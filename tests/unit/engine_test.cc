// The engine's threads and messages around a fake executor: admission, failure, stop, hang,
// shutdown.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace hisparse::engine {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 30s;

// What the test and the executor share: it outlives both.
class Gate {
 public:
  void shut() { set(false, false); }
  void open() { set(true, false); }
  void open_to_failure() { set(true, true); }
  // Waits until it is open; whether the step succeeds.
  bool pass() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
    return !failing_;
  }

 private:
  void set(bool open, bool failing) {
    std::lock_guard lock(mutex_);
    open_ = open;
    failing_ = failing;
    opened_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = true;
  bool failing_ = false;
};

// Runs each step on its own thread: every sampled token is 7. Steps wait while the gate is shut.
class FakeExecutor final : public StepExecutor {
 public:
  explicit FakeExecutor(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  ~FakeExecutor() override {
    if (thread_.joinable()) thread_.join();
  }
  void set_done(StepDone done) override { done_ = std::move(done); }
  void submit(std::shared_ptr<const sched::StepPlan> plan) override {
    if (thread_.joinable()) thread_.join();
    thread_ = std::thread([this, plan] { run(*plan); });
  }
  base::Ledger allocated() const override { return {}; }

 private:
  void run(const sched::StepPlan& plan) {
    StepResult result;
    result.id = plan.id;
    if (gate_->pass()) {
      result.tokens.assign(plan.samples.size(), 7);
    } else {
      result.status = absl::InternalError("the device is gone");
    }
    done_(std::move(result));
  }

  std::shared_ptr<Gate> gate_;
  StepDone done_;
  std::thread thread_;
};

class EngineThreads : public testing::Test {
 protected:
  void start(std::int32_t max_live = 8) {
    EngineConfig config;
    config.core.scheduler = {.max_batched_tokens = 64, .max_sequences = 4, .max_preemptions = 2};
    config.core.kv = {
        .page_tokens = 4, .resident_slots = 64, .prefix_caching = kv::PrefixCaching::kOn};
    config.core.max_model_len = 200;
    config.core.vocabulary = 50;
    config.max_live_requests = max_live;
    config.output_capacity_bytes = 64;
    config.hang_limit = 50ms;
    engine_ = std::make_unique<Engine>(config, std::make_unique<FakeExecutor>(gate_),
                                       std::make_unique<transfer::NullMover>(),
                                       [](base::TokenId) { return std::string("seven "); });
  }

  static Request request(std::int32_t max_tokens) {
    Request request;
    request.prompt = {1, 2, 3};
    request.sampling.max_tokens = max_tokens;
    return request;
  }

  RequestHandle submit(std::int32_t max_tokens) {
    auto handle = engine_->submit(request(max_tokens), nullptr);
    EXPECT_TRUE(handle.ok()) << handle.status();
    return std::move(*handle);
  }

  // Reads to the end; the text in `text`.
  static Finish finish_of(const RequestHandle& handle, std::string* text = nullptr) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      std::optional<OutputChunk> chunk = handle.output().wait_take(100ms);
      if (!chunk) continue;
      if (text != nullptr) *text += chunk->text;
      if (chunk->finish) return *chunk->finish;
    }
    ADD_FAILURE() << "no finish";
    return {};
  }

  template <typename Condition>
  static bool eventually(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }

  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineThreads, ServesTextToTheLimit) {
  start();
  std::string text;
  const RequestHandle handle = submit(3);
  EXPECT_EQ(finish_of(handle, &text).reason, FinishReason::kLength);
  EXPECT_EQ(text, "seven seven seven ");
}

TEST_F(EngineThreads, OneRequestTooManyIsResourceExhaustedUntilOneEnds) {
  start(2);
  gate_->shut();
  RequestHandle first = submit(1);
  RequestHandle second = submit(1);
  EXPECT_EQ(engine_->submit(request(1), nullptr).status().code(),
            absl::StatusCode::kResourceExhausted);
  gate_->open();
  finish_of(first);
  finish_of(second);
  EXPECT_TRUE(eventually([&] { return engine_->submit(request(1), nullptr).ok(); }));
  EXPECT_TRUE(eventually([&] {
    return engine_->stats()->refused[static_cast<std::size_t>(Refusal::kQueueFull)] >= 1;
  }));
}

TEST_F(EngineThreads, AFailedStepEndsEverybodyAndRefusesNewRequests) {
  start();
  gate_->shut();
  const RequestHandle running = submit(5);
  const RequestHandle waiting = submit(5);
  gate_->open_to_failure();
  for (const RequestHandle* handle : {&running, &waiting}) {
    const Finish finish = finish_of(*handle);
    EXPECT_EQ(finish.reason, FinishReason::kError);
    EXPECT_FALSE(finish.status.ok());
  }
  EXPECT_EQ(engine_->lifecycle(), Lifecycle::kFailed);
  EXPECT_EQ(engine_->submit(request(1), nullptr).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(EngineThreads, AStepThatTakesTooLongIsNoProgress) {
  start();
  EXPECT_TRUE(engine_->making_progress());
  gate_->shut();
  const RequestHandle handle = submit(1);
  EXPECT_TRUE(eventually([&] { return !engine_->making_progress(); }));
  gate_->open();
  finish_of(handle);
  EXPECT_TRUE(eventually([&] { return engine_->making_progress(); }));
}

TEST_F(EngineThreads, ADroppedHandleEndsItsRequestWhileAStepIsInFlight) {
  start();
  gate_->shut();
  { const RequestHandle dropped = submit(100); }
  gate_->open();
  EXPECT_TRUE(eventually([&] {
    const auto stats = engine_->stats();
    return stats->running + stats->waiting == 0 && stats->kv.referenced == 0 &&
           stats->finished[static_cast<std::size_t>(FinishReason::kAbort)] == 1;
  }));
}

// More dropped handles than the inbox has places, all while the engine thread waits for the
// executor's gate.
TEST_F(EngineThreads, ThousandsOfHandlesDroppedLateAreNoOverflow) {
  start(1);
  std::vector<RequestHandle> finished;
  for (int i = 0; i < 3000; ++i) {
    std::optional<RequestHandle> handle;
    ASSERT_TRUE(eventually([&] {
      auto submitted = engine_->submit(request(1), nullptr);
      if (submitted.ok()) handle = std::move(*submitted);
      return submitted.ok();
    }));
    finish_of(*handle);
    finished.push_back(std::move(*handle));
  }
  gate_->shut();
  finished.clear();
  gate_->open();
  const RequestHandle last = submit(1);
  EXPECT_EQ(finish_of(last).reason, FinishReason::kLength);
}

// The handle's end comes right behind the finish chunk and must not overtake the stop. (The engine
// may have reached max_tokens before it hears of the stop: that counts as length.)
TEST_F(EngineThreads, AMatchedStopStringIsNeverCountedAsAbort) {
  start();
  for (int i = 0; i < 50; ++i) {
    Request stopped = request(100);
    stopped.sampling.stop = {"seven s"};
    auto handle = engine_->submit(std::move(stopped), nullptr);
    ASSERT_TRUE(handle.ok());
    std::string text;
    const Finish finish = finish_of(*handle, &text);
    EXPECT_EQ(finish.reason, FinishReason::kStop);
    EXPECT_EQ(finish.stop_string, "seven s");
    EXPECT_EQ(text, "");
  }
  const auto count = [&](FinishReason reason) {
    return engine_->stats()->finished[static_cast<std::size_t>(reason)];
  };
  EXPECT_TRUE(
      eventually([&] { return engine_->stats()->running + engine_->stats()->waiting == 0; }));
  EXPECT_EQ(count(FinishReason::kAbort), 0);
  EXPECT_EQ(count(FinishReason::kStop) + count(FinishReason::kLength), 50);
}

TEST_F(EngineThreads, AClientThatDoesNotReadIsCancelled) {
  start();
  const RequestHandle handle = submit(150);
  EXPECT_TRUE(eventually([&] {
    return engine_->stats()->finished[static_cast<std::size_t>(FinishReason::kAbort)] == 1;
  }));
  std::string text;
  EXPECT_EQ(finish_of(handle, &text).reason, FinishReason::kError);
  EXPECT_LE(text.size(), 64u);
}

TEST_F(EngineThreads, TheEndOfTheEngineWaitsForTheStepInFlight) {
  start();
  gate_->shut();
  {
    const RequestHandle dropped = submit(100);
    ASSERT_TRUE(eventually([&] { return engine_->stats()->steps == 1; }));
  }
  std::thread opener([gate = gate_] {
    std::this_thread::sleep_for(20ms);
    gate->open();
  });
  engine_.reset();
  opener.join();
}

}  // namespace
}  // namespace hisparse::engine
