// The bounded channel from the output thread to one client.
#include "engine/output_channel.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace hisparse::engine {
namespace {

// Longer than any test may run: a wake-up that does not come is a hang, never a passing test.
constexpr std::chrono::hours kForever(1);
constexpr std::size_t kRoomy = 1 << 16;  // bytes that no test here writes

OutputChunk text(std::string text, std::int32_t completion_tokens = 0) {
  OutputChunk chunk;
  chunk.text = std::move(text);
  chunk.usage.completion_tokens = completion_tokens;
  return chunk;
}

OutputChunk end(FinishReason reason, std::string last_text = "") {
  OutputChunk chunk = text(std::move(last_text));
  chunk.finish.emplace();
  chunk.finish->reason = reason;
  return chunk;
}

TEST(OutputChannel, UnreadDeltasAreMergedInOrderWithTheLatestUsage) {
  OutputChannel channel(kRoomy);
  EXPECT_FALSE(channel.take());
  ASSERT_TRUE(channel.push(text("one ", 1)));
  ASSERT_TRUE(channel.push(text("two ", 2)));
  ASSERT_TRUE(channel.push(end(FinishReason::kLength, "three")));
  const std::optional<OutputChunk> chunk = channel.take();
  ASSERT_TRUE(chunk && chunk->finish);
  EXPECT_EQ(chunk->text, "one two three");
  EXPECT_EQ(chunk->finish->reason, FinishReason::kLength);
  EXPECT_FALSE(channel.take());
}

TEST(OutputChannel, TheUsageOfTheLastDeltaWins) {
  OutputChannel channel(kRoomy);
  ASSERT_TRUE(channel.push(text("a", 1)));
  ASSERT_TRUE(channel.push(text("b", 2)));
  EXPECT_EQ(channel.take()->usage.completion_tokens, 2);
}

TEST(OutputChannel, TextPastTheCapacityIsRefusedAndLeavesWhatIsThere) {
  OutputChannel channel(4);
  EXPECT_TRUE(channel.push(text("abc")));
  EXPECT_FALSE(channel.push(text("de")));
  EXPECT_TRUE(channel.push(text("d")));  // exactly full
  EXPECT_FALSE(channel.push(text("e")));
  EXPECT_EQ(channel.take()->text, "abcd");
  EXPECT_TRUE(channel.push(text("efgh")));  // reading makes room
  EXPECT_EQ(channel.take()->text, "efgh");
  EXPECT_FALSE(channel.push(text("ijklm")));  // alone too long
  EXPECT_FALSE(channel.take());
}

TEST(OutputChannel, AFinishIsAcceptedPastTheCapacity) {
  OutputChannel channel(2);
  ASSERT_TRUE(channel.push(text("ab")));
  EXPECT_TRUE(channel.push(end(FinishReason::kStop, "cd")));
  EXPECT_EQ(channel.take()->text, "abcd");
}

TEST(OutputChannel, NothingIsAcceptedAfterAFinish) {
  OutputChannel channel(kRoomy);
  ASSERT_TRUE(channel.push(end(FinishReason::kStop)));
  EXPECT_FALSE(channel.push(text("late")));
  EXPECT_FALSE(channel.push(end(FinishReason::kError)));
  const std::optional<OutputChunk> chunk = channel.take();
  ASSERT_TRUE(chunk && chunk->finish);
  EXPECT_EQ(chunk->text, "");
  EXPECT_EQ(chunk->finish->reason, FinishReason::kStop);
  EXPECT_FALSE(channel.push(text("later")));  // taking the finish does not reopen the channel
  EXPECT_FALSE(channel.push(end(FinishReason::kError)));
  EXPECT_FALSE(channel.take());
}

TEST(OutputChannel, NotifiesOnlyWhenItTurnsFromEmptyToNonEmpty) {
  OutputChannel channel(4);
  int notified = 0;
  channel.set_notify([&] { ++notified; });
  EXPECT_FALSE(channel.push(text("too long")));
  EXPECT_EQ(notified, 0);
  ASSERT_TRUE(channel.push(text("a")));
  EXPECT_EQ(notified, 1);
  ASSERT_TRUE(channel.push(text("b")));
  EXPECT_EQ(notified, 1);
  (void)channel.take();
  ASSERT_TRUE(channel.push(text("c")));
  EXPECT_EQ(notified, 2);
  ASSERT_TRUE(channel.push(end(FinishReason::kStop)));
  EXPECT_EQ(notified, 2);
  (void)channel.take();
  EXPECT_FALSE(channel.push(text("d")));
  EXPECT_EQ(notified, 2);
}

TEST(OutputChannel, WaitTakeGivesUpAfterItsLimit) {
  OutputChannel channel(kRoomy);
  EXPECT_FALSE(channel.wait_take(std::chrono::milliseconds(1)));
  ASSERT_TRUE(channel.push(text("a")));
  EXPECT_EQ(channel.wait_take(std::chrono::nanoseconds(0))->text, "a");
}

TEST(OutputChannel, WaitTakeWakesUpForAPushOfAnotherThread) {
  OutputChannel channel(kRoomy);
  constexpr int kPushes = 2000;
  std::thread producer([&] {
    for (int i = 0; i < kPushes; ++i) EXPECT_TRUE(channel.push(text("x", i)));
    EXPECT_TRUE(channel.push(end(FinishReason::kLength)));
  });
  std::string received;
  bool finished = false;
  while (!finished) {
    const std::optional<OutputChunk> chunk = channel.wait_take(kForever);
    ASSERT_TRUE(chunk);
    received += chunk->text;
    finished = chunk->finish.has_value();
  }
  producer.join();
  EXPECT_EQ(received, std::string(kPushes, 'x'));
}

}  // namespace
}  // namespace hisparse::engine
