// Which points are run, which are refused in which words, and what the prompts hold.
#include "app/bench_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <string>

#include "app/machine_info.h"

namespace hisparse::app {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr BenchLimits kLimits = {
    .max_model_len = 1000, .page_tokens = 64, .pages = 32, .page_bytes = 100};

config::BenchSettings settings_of(std::vector<std::int32_t> batches,
                                  std::vector<std::int64_t> lengths, std::int32_t output_len) {
  config::BenchSettings settings;
  settings.batch_sizes = std::move(batches);
  settings.input_lens = std::move(lengths);
  settings.output_len = output_len;
  return settings;
}

TEST(BenchPoints, EveryBatchIsRunAtEveryContext) {
  const auto points = plan_points(settings_of({1, 2}, {16, 32}, 8), kLimits);
  ASSERT_TRUE(points.ok()) << points.status();
  std::vector<std::pair<std::int32_t, std::int64_t>> pairs;
  for (const BenchPoint& point : *points) pairs.emplace_back(point.batch_size, point.input_len);
  EXPECT_THAT(pairs,
              ElementsAre(std::pair(1, 16), std::pair(2, 16), std::pair(1, 32), std::pair(2, 32)));
}

TEST(BenchPoints, TheDefaultContextIsWhatTheModelAllows) {
  EXPECT_EQ(plan_points(settings_of({1}, {}, 100), kLimits)->front().input_len, 512);
  EXPECT_EQ(plan_points(settings_of({1}, {}, 900), kLimits)->front().input_len, 100);
  const auto none = plan_points(settings_of({1}, {}, 1000), kLimits);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("--output-len 1000 leaves no room"));
}

TEST(BenchPoints, ARequestLongerThanTheModelSaysWhatFits) {
  EXPECT_TRUE(plan_points(settings_of({1}, {900}, 100), kLimits).ok());
  const auto refused = plan_points(settings_of({1}, {10, 901}, 100), kLimits);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--input-lens 901"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("may have 900 tokens"));
}

// 2 pages for 64 + 65 tokens, whose last row is not needed: 16 requests fill 32 pages.
TEST(BenchPoints, ABatchThatDoesNotFitTheCacheTogetherIsRefused) {
  EXPECT_TRUE(plan_points(settings_of({16}, {64}, 65), kLimits).ok());
  EXPECT_FALSE(plan_points(settings_of({16}, {64}, 66), kLimits).ok());
  const auto refused = plan_points(settings_of({1, 17}, {64}, 65), kLimits);
  const std::string message(refused.status().message());
  EXPECT_THAT(message, HasSubstr("batch 17, context 64"));
  EXPECT_THAT(message, HasSubstr("--kv-cache-memory-bytes 3400"));
  EXPECT_THAT(message, HasSubstr("batches of at most 16"));
}

TEST(BenchPoints, ALongPrefillHidesTheDecodeOfALargeBatch) {
  constexpr std::int64_t kStep = 512;
  EXPECT_FALSE(lacks_steady_state({.batch_size = 1, .input_len = 7500}, 128, kStep));
  EXPECT_FALSE(lacks_steady_state({.batch_size = 32, .input_len = 512}, 128, kStep));
  EXPECT_TRUE(lacks_steady_state({.batch_size = 32, .input_len = 7500}, 128, kStep));
  EXPECT_FALSE(lacks_steady_state({.batch_size = 32, .input_len = 7500}, 1000, kStep));
}

// Ids: 0 text, 1 control, 2 begin, 3 text, 4 end, 5 eot, 6 text.
class SmallTokenizer final : public text::Tokenizer {
 public:
  absl::StatusOr<std::vector<base::TokenId>> encode(
      std::string_view, std::span<const text::UserSpan>) const override {
    return absl::UnimplementedError("not needed");
  }
  std::string_view token_bytes(base::TokenId token) const override { return token == 1 ? "" : "t"; }
  std::string_view token_text(base::TokenId) const override { return "t"; }
  int vocabulary_size() const override { return 7; }
  std::size_t longest_token() const override { return 1; }
  std::optional<base::TokenId> bos() const override { return 2; }
  std::optional<base::TokenId> eos() const override { return 4; }
  bool adds_bos() const override { return false; }
  const std::vector<base::TokenId>& end_tokens() const override { return ends_; }

 private:
  std::vector<base::TokenId> ends_ = {4, 5};
};

TEST(BenchPrompts, PlainTokensAreTextInTokenizerAndWeights) {
  const SmallTokenizer tokenizer;
  EXPECT_THAT(*plain_tokens(tokenizer, 7), ElementsAre(0, 3, 6));
  EXPECT_THAT(*plain_tokens(tokenizer, 100), ElementsAre(0, 3, 6));  // padded weights
  EXPECT_THAT(*plain_tokens(tokenizer, 4), ElementsAre(0, 3));
  EXPECT_EQ(plain_tokens(tokenizer, 0).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(BenchPrompts, APromptIsReproducibleAndLikeNoOther) {
  constexpr std::int64_t kLength = 64;
  const std::array<base::TokenId, 4> choices = {3, 5, 7, 11};
  const std::vector<base::TokenId> first = random_prompt(choices, 1, 0, kLength);
  EXPECT_THAT(first, SizeIs(kLength));
  EXPECT_THAT(first, Each(testing::AnyOf(3, 5, 7, 11)));
  EXPECT_EQ(std::set<base::TokenId>(first.begin(), first.end()).size(), choices.size());
  EXPECT_EQ(random_prompt(choices, 1, 0, kLength), first);
  EXPECT_NE(random_prompt(choices, 1, 1, kLength), first);
  EXPECT_NE(random_prompt(choices, 2, 0, kLength), first);
}

TEST(BenchMachine, CpuinfoGivesModelThreadsAndCores) {
  std::istringstream cpuinfo(
      "processor\t: 0\nmodel name\t: Some CPU @ 2.5GHz: fast\nphysical id\t: 0\ncore id\t\t: 0\n\n"
      "processor\t: 1\nmodel name\t: Some CPU\nphysical id\t: 0\ncore id\t\t: 0\n\n"
      "processor\t: 2\nphysical id\t: 1\ncore id\t\t: 0\n\nprocessor\t: 3\nphysical id\t: 1\n"
      "core id\t\t: 1\nflags\n");
  const MachineInfo info = parse_cpuinfo(cpuinfo);
  EXPECT_EQ(info.cpu_model, "Some CPU @ 2.5GHz: fast");
  EXPECT_EQ(info.logical_cpus, 4);
  EXPECT_EQ(info.physical_cores, 3);
}

}  // namespace
}  // namespace hisparse::app
