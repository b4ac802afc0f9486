// From token events to text: detokenizing, stop strings and the end of each stream.
#include "engine/output_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/output_channel.h"

namespace hisparse::engine {
namespace {

using base::SequenceId;
using base::TokenId;
using testing::ElementsAre;
using testing::IsEmpty;

// Longer than any test may run: a wake-up that does not come is a hang, never a passing test.
constexpr std::chrono::hours kForever(1);
constexpr std::size_t kRoomy = 1 << 16;  // bytes that no test here writes

// One stage whose vocabulary is a list of texts. Each test sends texts, settles, and reads.
class OutputStageTest : public testing::Test {
 protected:
  static constexpr std::size_t kQueue = 4;
  const SequenceId id{7};

  OutputStageTest()
      : stage_(std::make_unique<OutputStage>(
            [this](TokenId token) { return bytes_of(token); },
            OutputRequests{.stop = [this](SequenceId sequence) { note(stopped_, sequence); },
                           .cancel = [this](SequenceId sequence) { note(cancelled_, sequence); }},
            kQueue)) {}

  std::shared_ptr<OutputChannel> open(SequenceId sequence, std::vector<std::string> stops = {},
                                      std::size_t capacity = kRoomy) {
    auto channel = std::make_shared<OutputChannel>(capacity);
    stage_->open(sequence, channel, std::move(stops));
    return channel;
  }

  TokenEvent token_event(SequenceId sequence, std::string bytes) {
    TokenEvent event;
    event.sequence = sequence;
    std::lock_guard lock(mutex_);
    event.token = static_cast<TokenId>(vocabulary_.size());
    vocabulary_.push_back(std::move(bytes));
    event.usage.completion_tokens = ++tokens_;
    return event;
  }

  TokenEvent finish_event(SequenceId sequence, FinishReason reason = FinishReason::kLength) {
    TokenEvent event;
    event.sequence = sequence;
    event.usage.completion_tokens = tokens_;
    event.finish.emplace();
    event.finish->reason = reason;
    return event;
  }

  void send(TokenEvent event) { stage_->deliver({std::move(event)}); }
  void say(SequenceId sequence, std::string bytes) {
    send(token_event(sequence, std::move(bytes)));
  }

  // Returns when the stage has handled all that was sent before: the end of a stream that was sent
  // behind it has arrived.
  void settle() {
    const SequenceId probe(next_probe_++);
    const auto channel = open(probe);
    send(finish_event(probe));
    const auto chunk = channel->wait_take(kForever);
    ASSERT_TRUE(chunk && chunk->finish);
  }

  // What a client that reads now gets.
  std::optional<OutputChunk> read(OutputChannel& channel) {
    settle();
    return channel.take();
  }

  std::vector<SequenceId> stopped() { return copy(stopped_); }
  std::vector<SequenceId> cancelled() { return copy(cancelled_); }
  void close() { stage_.reset(); }

 private:
  std::string bytes_of(TokenId token) {
    std::lock_guard lock(mutex_);
    return vocabulary_.at(static_cast<std::size_t>(token));
  }
  void note(std::vector<SequenceId>& list, SequenceId sequence) {
    std::lock_guard lock(mutex_);
    list.push_back(sequence);
  }
  std::vector<SequenceId> copy(const std::vector<SequenceId>& list) {
    std::lock_guard lock(mutex_);
    return list;
  }

  std::mutex mutex_;  // the callbacks come on the stage's thread
  std::vector<std::string> vocabulary_;
  std::vector<SequenceId> stopped_;
  std::vector<SequenceId> cancelled_;
  std::int32_t tokens_ = 0;
  std::int64_t next_probe_ = 1000;
  std::unique_ptr<OutputStage> stage_;
};

TEST_F(OutputStageTest, TextIsShownTokenByTokenWithItsUsage) {
  const auto channel = open(id);
  say(id, "Hello");
  std::optional<OutputChunk> chunk = read(*channel);
  ASSERT_TRUE(chunk);
  EXPECT_EQ(chunk->text, "Hello");
  EXPECT_EQ(chunk->usage.completion_tokens, 1);
  EXPECT_FALSE(chunk->finish);
  say(id, " world");
  chunk = read(*channel);
  ASSERT_TRUE(chunk);
  EXPECT_EQ(chunk->text, " world");
  EXPECT_EQ(chunk->usage.completion_tokens, 2);
}

TEST_F(OutputStageTest, TheLastTokenAndTheFinishMayComeInOneEvent) {
  const auto channel = open(id);
  TokenEvent event = token_event(id, "last");
  event.finish = finish_event(id, FinishReason::kLength).finish;
  send(std::move(event));
  const auto chunk = read(*channel);
  ASSERT_TRUE(chunk && chunk->finish);
  EXPECT_EQ(chunk->text, "last");
  EXPECT_EQ(chunk->finish->reason, FinishReason::kLength);
  EXPECT_EQ(chunk->usage.completion_tokens, 1);
  EXPECT_THAT(stopped(), IsEmpty());
  EXPECT_THAT(cancelled(), IsEmpty());
}

TEST_F(OutputStageTest, ACharacterSplitOverTokensIsHeldUntilItIsComplete) {
  const auto channel = open(id);
  say(id, "caf\xC3");
  EXPECT_EQ(read(*channel)->text, "caf");
  say(id, "\xA9!");
  EXPECT_EQ(read(*channel)->text, "\xC3\xA9!");
}

TEST_F(OutputStageTest, NothingToShowMakesNoChunk) {
  const auto channel = open(id, {"###"});
  int notified = 0;
  channel->set_notify([&] { ++notified; });
  say(id, "\xE2");  // half a character
  EXPECT_FALSE(read(*channel));
  say(id, "\x82");
  EXPECT_FALSE(read(*channel));
  say(id, "");  // a control token
  EXPECT_FALSE(read(*channel));
  say(id, "\xAC");
  EXPECT_EQ(read(*channel)->text, "\xE2\x82\xAC");
  say(id, "##");  // perhaps a stop string
  EXPECT_FALSE(read(*channel));
  EXPECT_EQ(notified, 1);
}

TEST_F(OutputStageTest, AnIncompleteCharacterIsReplacedAtTheEnd) {
  const auto channel = open(id);
  say(id, "a\xF0\x9F");
  send(finish_event(id));
  EXPECT_EQ(read(*channel)->text, "a\xEF\xBF\xBD");
}

TEST_F(OutputStageTest, AStopStringAcrossTokensEndsTheStreamBeforeIt) {
  const auto channel = open(id, {"never", "\nUser:"});
  say(id, "yes\nUs");
  EXPECT_EQ(read(*channel)->text, "yes");
  EXPECT_THAT(stopped(), IsEmpty());
  say(id, "er: and more");
  const auto chunk = read(*channel);
  ASSERT_TRUE(chunk && chunk->finish);
  EXPECT_EQ(chunk->text, "");
  EXPECT_EQ(chunk->finish->reason, FinishReason::kStop);
  EXPECT_EQ(chunk->finish->stop_string, "\nUser:");
  EXPECT_EQ(chunk->usage.completion_tokens, 2);
  EXPECT_THAT(stopped(), ElementsAre(id));
  EXPECT_THAT(cancelled(), IsEmpty());
}

TEST_F(OutputStageTest, AStopStringInTheLastTokenWinsOverTheFinishOfTheEngine) {
  const auto channel = open(id, {"END"});
  TokenEvent event = token_event(id, "the END");
  event.finish = finish_event(id, FinishReason::kLength).finish;
  send(std::move(event));
  const auto chunk = read(*channel);
  ASSERT_TRUE(chunk && chunk->finish);
  EXPECT_EQ(chunk->text, "the ");
  EXPECT_EQ(chunk->finish->reason, FinishReason::kStop);
  EXPECT_EQ(chunk->finish->stop_string, "END");
}

TEST_F(OutputStageTest, AStopStringFoundOnlyInTheFlushMakesTheReasonStop) {
  const auto channel = open(id, {"b\xEF\xBF\xBD"});  // ends in the replacement character
  say(id, "ab\xE2\x82");
  EXPECT_EQ(read(*channel)->text, "a");
  send(finish_event(id, FinishReason::kLength));
  const auto chunk = read(*channel);
  ASSERT_TRUE(chunk && chunk->finish);
  EXPECT_EQ(chunk->text, "");
  EXPECT_EQ(chunk->finish->reason, FinishReason::kStop);
  EXPECT_EQ(chunk->finish->stop_string, "b\xEF\xBF\xBD");
  EXPECT_EQ(chunk->usage.completion_tokens, 1);
}

TEST_F(OutputStageTest, AHeldBeginningOfAStopStringIsReleasedAtTheEnd) {
  const auto channel = open(id, {"STOP"});
  say(id, "full STO");
  EXPECT_EQ(read(*channel)->text, "full ");
  send(finish_event(id, FinishReason::kLength));
  const auto chunk = read(*channel);
  ASSERT_TRUE(chunk && chunk->finish);
  EXPECT_EQ(chunk->text, "STO");
  EXPECT_EQ(chunk->finish->reason, FinishReason::kLength);
  EXPECT_EQ(chunk->finish->stop_string, std::nullopt);
}

TEST_F(OutputStageTest, ASlowClientIsCancelledAndGetsAnErrorFinish) {
  const auto channel = open(id, {}, 4);
  say(id, "abc");
  say(id, "def");
  const auto chunk = read(*channel);
  ASSERT_TRUE(chunk && chunk->finish);
  EXPECT_EQ(chunk->text, "abc");
  EXPECT_EQ(chunk->finish->reason, FinishReason::kError);
  EXPECT_EQ(chunk->finish->status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(chunk->usage.completion_tokens, 2);
  EXPECT_THAT(cancelled(), ElementsAre(id));
  EXPECT_THAT(stopped(), IsEmpty());
}

TEST_F(OutputStageTest, EventsAfterTheEndAreIgnored) {
  const auto by_stop = open(id, {"."});
  const SequenceId slow(8);
  const auto by_capacity = open(slow, {}, 1);
  const SequenceId ended(9);
  const auto by_engine = open(ended);
  say(id, "a.");
  say(slow, "too long");
  send(finish_event(ended));
  for (const auto& channel : {by_stop, by_capacity, by_engine}) {
    const auto chunk = read(*channel);
    ASSERT_TRUE(chunk && chunk->finish);
  }
  for (const SequenceId sequence : {id, slow, ended}) {
    say(sequence, ".more.");
    send(finish_event(sequence, FinishReason::kAbort));
  }
  for (const auto& channel : {by_stop, by_capacity, by_engine}) EXPECT_FALSE(read(*channel));
  EXPECT_THAT(stopped(), ElementsAre(id));
  EXPECT_THAT(cancelled(), ElementsAre(slow));
}

TEST_F(OutputStageTest, EventsOfAnUnknownSequenceAreIgnored) {
  const auto channel = open(id);
  say(SequenceId(8), "lost");
  send(finish_event(SequenceId(8)));
  say(id, "here");
  EXPECT_EQ(read(*channel)->text, "here");
}

TEST_F(OutputStageTest, StreamsDoNotMixTheirHalves) {
  const SequenceId other(8);
  const auto first = open(id, {"xy"});
  const auto second = open(other, {"xy"});
  say(id, "\xC3");
  say(other, "\xA9x");  // no continuation of the first stream's character
  say(id, "\xA9x");
  say(other, "z");
  EXPECT_EQ(read(*first)->text, "\xC3\xA9");
  EXPECT_EQ(read(*second)->text, "\xEF\xBF\xBDxz");
}

TEST_F(OutputStageTest, ClosingHandlesWhatIsQueued) {
  const auto channel = open(id);
  std::string expected;
  for (int i = 0; i < 100; ++i) {
    const std::string word = std::to_string(i) + " ";
    expected += word;
    say(id, word);  // far more messages than the queue holds
  }
  say(id, "end");
  send(finish_event(id));
  close();
  const auto chunk = channel->take();
  ASSERT_TRUE(chunk && chunk->finish);
  EXPECT_EQ(chunk->text, expected + "end");
  EXPECT_EQ(chunk->usage.completion_tokens, 101);
}

}  // namespace
}  // namespace hisparse::engine
