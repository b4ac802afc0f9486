#include "text/stop_matcher.h"

#include <gtest/gtest.h>

namespace hisparse::text {
namespace {

TEST(StopMatcher, NoByteOfAStopStringIsShown) {
  StopMatcher matcher({"<|im_end|>"});
  EXPECT_EQ(matcher.push("Hello<|im"), "Hello");
  EXPECT_EQ(matcher.push("_end"), "");
  EXPECT_EQ(matcher.push("|>tail"), "");
  EXPECT_EQ(matcher.matched(), "<|im_end|>");
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, HeldTextComesBackWhenItIsNoStopString) {
  StopMatcher matcher({"</think>"});
  EXPECT_EQ(matcher.push("a</th"), "a");
  EXPECT_EQ(matcher.push("x"), "</thx");
  EXPECT_EQ(matcher.push("<"), "");
  EXPECT_EQ(matcher.flush(), "<");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, OnlyATruePrefixIsHeld) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.push("xaaa"), "xa");
  EXPECT_EQ(matcher.push("b!"), "");
  EXPECT_EQ(matcher.matched(), "aab");
}

TEST(StopMatcher, EarliestEndWins) {
  StopMatcher matcher({"long stop", "ng"});
  EXPECT_EQ(matcher.push("a long stop"), "a lo");
  EXPECT_EQ(matcher.matched(), "ng");
}

TEST(StopMatcher, LongestWinsAmongEqualEnds) {
  for (const std::vector<std::string>& stops :
       {std::vector<std::string>{"end", "the end"}, {"the end", "end"}}) {
    StopMatcher matcher(stops);
    EXPECT_EQ(matcher.push("now the end"), "now ");
    EXPECT_EQ(matcher.matched(), "the end");
  }
}

TEST(StopMatcher, WithoutStopStringsEverythingIsShown) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_EQ(matcher.flush(), "");
}

}  // namespace
}  // namespace hisparse::text
