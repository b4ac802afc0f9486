// When tokens count as arrived, and how a run ends. The frontend is a script that plays whenever
// the run asks whether to stop, on the same thread: nothing depends on timing.
#include "app/bench_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <string>

namespace hisparse::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int32_t kOutputLen = 3;

class ScriptedFrontend final : public engine::Frontend {
 public:
  absl::StatusOr<engine::RequestHandle> submit(engine::Request request,
                                               std::function<void()> notify) override {
    if (requests.size() == refuse_from) return absl::ResourceExhaustedError("no more");
    constexpr std::size_t kCapacity = 1024;
    auto channel = std::make_shared<engine::OutputChannel>(kCapacity);
    channel->set_notify(std::move(notify));
    requests.push_back(std::move(request));
    channels.push_back(channel);
    return engine::RequestHandle(channel, [this] { ++cancelled; });
  }
  std::shared_ptr<const engine::EngineStats> stats() const override { return nullptr; }
  engine::Lifecycle lifecycle() const override { return engine::Lifecycle::kReady; }
  bool making_progress() const override { return true; }

  // The request has so many tokens now.
  void push(std::size_t request, std::int32_t tokens) {
    engine::OutputChunk chunk;
    for (std::int32_t& known = shown[request]; known < tokens; ++known) chunk.text += show_token(7);
    chunk.usage.completion_tokens = tokens;
    EXPECT_TRUE(channels[request]->push(std::move(chunk)));
  }
  void finish(std::size_t request, std::int32_t tokens,
              engine::FinishReason reason = engine::FinishReason::kLength,
              absl::Status status = absl::OkStatus()) {
    engine::OutputChunk chunk;
    chunk.usage.completion_tokens = tokens;
    chunk.finish.emplace();
    chunk.finish->reason = reason;
    chunk.finish->status = std::move(status);
    EXPECT_TRUE(channels[request]->push(std::move(chunk)));
  }

  std::vector<engine::Request> requests;
  std::vector<std::shared_ptr<engine::OutputChannel>> channels;
  std::map<std::size_t, std::int32_t> shown;  // tokens by request
  std::size_t refuse_from = 100;
  int cancelled = 0;
};

class BenchRun : public testing::Test {
 protected:
  // One act is played before each look at the arrivals; when they are used up, the run is stopped.
  absl::StatusOr<RunTimes> run(std::size_t requests, std::deque<std::function<void()>> acts) {
    Batch batch;
    batch.output_len = kOutputLen;
    for (std::size_t i = 0; i < requests; ++i) {
      batch.prompts.push_back({static_cast<base::TokenId>(i), 7});
    }
    return run_batch(frontend, batch,
                     {.clock = clock,
                      .stop =
                          [&] {
                            if (acts.empty()) return true;
                            acts.front()();
                            acts.pop_front();
                            return false;
                          },
                      .progress = [this](const RunTimes&) { ++progress_calls; }});
  }

  base::VirtualClock clock;
  ScriptedFrontend frontend;
  int progress_calls = 0;
};

TEST_F(BenchRun, EachTokenHasTheTimeOfItsNotification) {
  clock.advance(100);
  const auto times = run(2, {[&] {
                               clock.advance(10);
                               frontend.push(0, 1);
                               clock.advance(1);
                               frontend.push(1, 1);
                               clock.advance(50);  // seen late, arrived before
                             },
                             [&] {
                               frontend.push(0, 2);
                               clock.advance(5);
                               frontend.push(1, 2);
                             },
                             [&] {
                               frontend.push(1, 3);
                               clock.advance(5);
                               frontend.push(0, 3);
                             },
                             [&] {
                               clock.advance(500);  // the end is no token
                               frontend.finish(0, 3);
                               frontend.finish(1, 3);
                             }});
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(times->input_len, 2);
  EXPECT_EQ(times->requests[0].submitted, 100);
  EXPECT_THAT(times->requests[0].tokens, ElementsAre(110, 161, 171));
  EXPECT_THAT(times->requests[1].tokens, ElementsAre(111, 166, 166));
  EXPECT_EQ(times->merged_tokens, 0);
  EXPECT_EQ(progress_calls, 4);
}

TEST_F(BenchRun, MergedTokensHaveTheTimeAtWhichTheyWereTakenAndAreCounted) {
  const auto times = run(1, {[&] {
                           clock.advance(10);
                           frontend.push(0, 1);
                           clock.advance(10);
                           frontend.push(0, 2);
                           clock.advance(10);
                           frontend.push(0, 3);
                           frontend.finish(0, 3);
                           clock.advance(10);
                         }});
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_THAT(times->requests[0].tokens, ElementsAre(10, 40, 40));
  EXPECT_EQ(times->merged_tokens, 2);
}

TEST_F(BenchRun, RequestsAreGreedyAndGoOnPastEndTokens) {
  const auto times = run(2, {[&] {
                           for (const std::size_t i : {0, 1}) {
                             frontend.push(i, kOutputLen);
                             frontend.finish(i, kOutputLen);
                           }
                         }});
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(frontend.requests.size(), 2u);
  EXPECT_THAT(frontend.requests[1].prompt, ElementsAre(1, 7));
  EXPECT_EQ(frontend.requests[1].sampling.temperature, 0.0f);
  EXPECT_EQ(frontend.requests[1].sampling.max_tokens, kOutputLen);
  EXPECT_TRUE(frontend.requests[1].sampling.ignore_eos);
}

TEST_F(BenchRun, AFailedRequestIsNamed) {
  const auto times = run(2, {[&] {
                           frontend.push(1, 1);
                           frontend.finish(1, 2, engine::FinishReason::kError,
                                           absl::InternalError("the device is gone"));
                         }});
  EXPECT_EQ(times.status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(times.status().message(), "request 2 of 2: the device is gone");
  EXPECT_EQ(frontend.cancelled, 2);
}

TEST_F(BenchRun, ARequestThatEndsEarlyIsAFailure) {
  const auto stopped = run(1, {[&] {
                             frontend.push(0, 1);
                             frontend.finish(0, 1, engine::FinishReason::kStop);
                           }});
  EXPECT_THAT(std::string(stopped.status().message()),
              HasSubstr("request 1 of 1: ended by stop after 1 of 3 tokens"));
  frontend.channels.clear();
  frontend.shown.clear();
  const auto short_of_one = run(1, {[&] {
                                  frontend.push(0, 2);
                                  frontend.finish(0, 2);
                                }});
  EXPECT_THAT(std::string(short_of_one.status().message()), HasSubstr("after 2 of 3 tokens"));
}

TEST_F(BenchRun, ATokenThatWasNotShownHasNoArrivalAndIsAFailure) {
  const auto times = run(1, {[&] {
                           frontend.push(0, 1);
                           frontend.finish(0, kOutputLen);
                         }});
  EXPECT_THAT(std::string(times.status().message()), HasSubstr("a token was not shown"));
}

TEST_F(BenchRun, ARefusedRequestIsNamedAndTheOthersAreCancelled) {
  frontend.refuse_from = 2;
  const auto times = run(4, {});
  EXPECT_EQ(times.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(times.status().message(), "request 3 of 4: no more");
  EXPECT_EQ(frontend.cancelled, 2);
}

TEST_F(BenchRun, AStopCancelsWhatIsOpen) {
  const auto times = run(3, {[&] { frontend.push(0, 1); }});
  EXPECT_EQ(times.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(frontend.cancelled, 3);
  frontend.push(0, 2);  // a late notification reaches nobody, and nothing that is gone
}

}  // namespace
}  // namespace hisparse::app
