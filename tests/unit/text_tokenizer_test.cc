#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/text_fixtures.h"

namespace hisparse::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MetadataMap;

// Bytes a, b, c, the space and the apostrophe, a few merges, two control tokens and a user-defined
// one.
constexpr base::TokenId kA = 0, kB = 1, kC = 2, kSpace = 3, kAb = 4, kAbc = 5, kSpaceA = 6,
                        kEnd = 7, kEndLong = 8, kTool = 9;

MetadataMap small_metadata() {
  return {{"tokenizer.ggml.model", std::string("gpt2")},
          {"tokenizer.ggml.pre", std::string("smollm")},
          {"tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "c", "Ġ", "ab", "abc", "Ġa",
                                                             "<ab>", "<ab>c", "bc b"}},
          {"tokenizer.ggml.token_type", std::vector<std::int64_t>{1, 1, 1, 1, 1, 1, 1, 3, 3, 4}},
          {"tokenizer.ggml.merges", std::vector<std::string>{"a b", "ab c", "Ġ a"}},
          {"tokenizer.ggml.bos_token_id", std::int64_t{7}},
          {"tokenizer.ggml.eos_token_id", std::int64_t{8}}};
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> load(MetadataMap values) {
  return Tokenizer::from_gguf(format::Metadata(std::move(values)));
}

std::unique_ptr<const Tokenizer> small_tokenizer() {
  auto tokenizer = load(small_metadata());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return std::move(*tokenizer);
}

std::vector<base::TokenId> encode(std::string_view text, std::vector<UserSpan> spans = {}) {
  auto ids = small_tokenizer()->encode(text, spans);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return *ids;
}

std::string load_error(const std::string& key, format::MetadataValue value) {
  MetadataMap metadata = small_metadata();
  metadata.insert_or_assign(key, std::move(value));
  const auto tokenizer = load(std::move(metadata));
  return tokenizer.ok() ? "loaded" : tokenizer.status().ToString();
}

TEST(Tokenizer, AgreesWithHuggingFaceOnTheTinyVocabulary) {
  const nlohmann::json fixture = testing::read_json("tiny_bpe.json");
  for (const auto& [pre, cases] : fixture.at("cases").items()) {
    const auto tokenizer = load(testing::tiny_metadata(fixture, pre));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const testing::TokenCase& one : testing::token_cases(cases)) {
      const auto ids = (*tokenizer)->encode(one.text);
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_EQ(*ids, one.ids) << pre << ": " << one.text.substr(0, 80);
    }
  }
}

TEST(Tokenizer, DecodingGivesTheTextBackWithoutControlTokens) {
  const nlohmann::json fixture = testing::read_json("tiny_bpe.json");
  const auto tokenizer = load(testing::tiny_metadata(fixture, "smollm"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (const testing::TokenCase& one : testing::token_cases(fixture.at("cases").at("smollm"))) {
    std::string written, plain;
    for (const base::TokenId id : one.ids) {
      plain += (*tokenizer)->token_bytes(id);
      const bool control = (*tokenizer)->token_bytes(id).empty();
      written += control ? (*tokenizer)->token_text(id) : (*tokenizer)->token_bytes(id);
    }
    EXPECT_EQ(written, one.text);
    if (one.text.find("<|") == std::string::npos) {
      EXPECT_EQ(plain, one.text);
    }
  }
}

TEST(Tokenizer, LowestRankMergesFirst) {
  EXPECT_THAT(encode("abc"), ElementsAre(kAbc));
  EXPECT_THAT(encode(" abc"), ElementsAre(kSpace, kAbc));
  EXPECT_THAT(encode(" a"), ElementsAre(kSpaceA));
  EXPECT_THAT(encode("aab"), ElementsAre(kA, kAb));
}

TEST(Tokenizer, LongestSpecialTokenAtTheLeftmostPlaceWins) {
  EXPECT_THAT(encode("<ab>"), ElementsAre(kEnd));
  EXPECT_THAT(encode("<ab>c"), ElementsAre(kEndLong));
  EXPECT_THAT(encode("<ab>b"), ElementsAre(kEnd, kB));
  EXPECT_THAT(encode("abc b"), ElementsAre(kA, kTool));
}

TEST(Tokenizer, SpecialTokensInUserTextStayText) {
  // "<" and ">" have no byte token here, so plain text leaves "ab" behind.
  EXPECT_THAT(encode("<ab>", {{0, 4}}), ElementsAre(kAb));
  EXPECT_THAT(encode("<ab>c", {{0, 5}}), ElementsAre(kAb, kC));
  EXPECT_THAT(encode("bc b", {{0, 4}}), ElementsAre(kB, kC, kSpace, kB));
  EXPECT_THAT(encode("c<ab>c<ab>", {{0, 10}}), ElementsAre(kC, kAb, kC, kAb));
  EXPECT_THAT(encode("<ab>c<ab>c<ab>", {{4, 10}}), ElementsAre(kEnd, kC, kAb, kC, kEnd));
}

TEST(Tokenizer, SpecialTokensAcrossABorderOfUserTextStayText) {
  EXPECT_THAT(encode("<ab>", {{0, 1}}), ElementsAre(kAb));
  EXPECT_THAT(encode("<ab>", {{3, 4}}), ElementsAre(kAb));
  EXPECT_THAT(encode("<ab>", {{1, 2}}), ElementsAre(kAb));
  EXPECT_THAT(encode("<ab><ab><ab>", {{4, 8}}), ElementsAre(kEnd, kAb, kEnd));
  EXPECT_THAT(encode("<ab><ab><ab>", {{0, 1}, {5, 6}}), ElementsAre(kAb, kAb, kEnd));
}

TEST(Tokenizer, ShorterSpecialTokenBeforeUserTextIsStillFound) {
  EXPECT_THAT(encode("<ab>c", {{4, 5}}), ElementsAre(kEnd, kC));
}

TEST(Tokenizer, UserTextDoesNotSplitThePieces) {
  EXPECT_THAT(encode("abc", {{1, 2}}), ElementsAre(kAbc));
}

TEST(Tokenizer, BadSpansAndBadTextAreRefused) {
  const auto tokenizer = small_tokenizer();
  for (const std::vector<UserSpan>& spans :
       {std::vector<UserSpan>{{0, 9}}, {{2, 1}}, {{1, 2}, {0, 1}}, {{0, 2}, {1, 3}}}) {
    EXPECT_EQ(tokenizer->encode("abc", spans).status().code(), absl::StatusCode::kInvalidArgument);
  }
  for (const char* bad : {"\xFF", "a\xC3", "\xED\xA0\x80", "\xF4\x90\x80\x80"}) {
    EXPECT_EQ(tokenizer->encode(bad).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Tokenizer, ControlTokensStandForNoBytes) {
  const auto tokenizer = small_tokenizer();
  EXPECT_EQ(tokenizer->token_bytes(kEnd), "");
  EXPECT_EQ(tokenizer->token_text(kEnd), "<ab>");
  EXPECT_EQ(tokenizer->token_bytes(kSpaceA), " a");
  EXPECT_EQ(tokenizer->token_text(kSpaceA), "Ġa");
  EXPECT_EQ(tokenizer->token_bytes(kTool), "bc b");
}

TEST(Tokenizer, IdsOfTheFileAreReported) {
  const auto plain = small_tokenizer();
  EXPECT_EQ(plain->bos(), kEnd);
  EXPECT_EQ(plain->eos(), kEndLong);
  EXPECT_FALSE(plain->adds_bos());
  EXPECT_EQ(plain->vocabulary_size(), 10);
  EXPECT_THAT(plain->end_tokens(), ElementsAre(kEndLong));
  MetadataMap metadata = small_metadata();
  metadata["tokenizer.ggml.add_bos_token"] = true;
  metadata["tokenizer.ggml.eot_token_id"] = std::int64_t{7};
  const auto full = load(metadata);
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_TRUE((*full)->adds_bos());
  EXPECT_THAT((*full)->end_tokens(), ElementsAre(kEndLong, kEnd));
}

TEST(Tokenizer, UnsupportedKindsAreRefusedByName) {
  EXPECT_THAT(load_error("tokenizer.ggml.model", std::string("llama")), HasSubstr("\"llama\""));
  const std::string error = load_error("tokenizer.ggml.pre", std::string("llama-bpe"));
  EXPECT_THAT(error, HasSubstr("\"llama-bpe\""));
  EXPECT_THAT(error, HasSubstr("smollm, gpt-2"));
  EXPECT_THAT(load_error("tokenizer.ggml.pre", std::string("default")), HasSubstr("\"default\""));
  EXPECT_THAT(load_error("tokenizer.ggml.add_space_prefix", true), HasSubstr("add_space_prefix"));
  EXPECT_THAT(load_error("tokenizer.ggml.add_eos_token", true), HasSubstr("add_eos_token"));
}

TEST(Tokenizer, MissingKeysAreNamed) {
  for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
                          "tokenizer.ggml.token_type", "tokenizer.ggml.merges"}) {
    MetadataMap metadata = small_metadata();
    metadata.erase(key);
    const auto tokenizer = load(std::move(metadata));
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_THAT(tokenizer.status().ToString(), HasSubstr(key));
  }
}

TEST(Tokenizer, BrokenVocabulariesAreRefusedWithTheEntry) {
  using Strings = std::vector<std::string>;
  using Ints = std::vector<std::int64_t>;
  const std::string tokens = "tokenizer.ggml.tokens", types = "tokenizer.ggml.token_type";
  EXPECT_THAT(load_error(tokens, Strings{}), HasSubstr("0 entries"));
  EXPECT_THAT(load_error(types, Ints{1, 1}), HasSubstr("2 entries"));
  EXPECT_THAT(load_error(types, Ints{1, 1, 1, 1, 1, 1, 1, 3, 3, 6}), HasSubstr("token_type[9]"));
  EXPECT_THAT(load_error(types, Ints{3, 1, 1, 1, 1, 1, 1, 3, 3, 4}), HasSubstr("tokens[0]"));
  EXPECT_THAT(load_error(tokens, Strings{"a", "b", "c", "Ġ", "ab", "abc", "Ġa", "a", "x", "y"}),
              HasSubstr("tokens[7]: \"a\" is also token 0"));
  EXPECT_THAT(load_error(tokens, Strings{"a", "b", "c", "Ġ", "ab", "abc", "Ġa", "", "x", "y"}),
              HasSubstr("tokens[7]"));
  EXPECT_THAT(load_error(tokens, Strings{"a", "b", "\xFF", "Ġ", "ab", "abc", "Ġa", "w", "x", "y"}),
              HasSubstr("tokens[2]: not UTF-8"));
}

TEST(Tokenizer, BrokenMergesAreRefusedWithTheEntry) {
  using Strings = std::vector<std::string>;
  const std::string merges = "tokenizer.ggml.merges";
  for (const char* bad : {"ab", " a", "a ", "a b c", "", " "}) {
    EXPECT_THAT(load_error(merges, Strings{"a b", bad}), HasSubstr("merges[1]")) << bad;
  }
  EXPECT_THAT(load_error(merges, Strings{"x a"}), HasSubstr("merges[0]: unknown token \"x\""));
  EXPECT_THAT(load_error(merges, Strings{"b a"}), HasSubstr("unknown token \"ba\""));
  EXPECT_THAT(load_error(merges, Strings{"a b", "a b"}), HasSubstr("twice"));
  EXPECT_THAT(load_error(merges, Strings{"<ab> c"}), HasSubstr("control token \"<ab>\""));
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreRefused) {
  for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{10}, std::int64_t{1} << 40}) {
    EXPECT_THAT(load_error("tokenizer.ggml.eos_token_id", id), HasSubstr("eos_token_id"));
    EXPECT_THAT(load_error("tokenizer.ggml.eot_token_id", id), HasSubstr("eot_token_id"));
  }
  MetadataMap metadata = small_metadata();
  metadata.erase("tokenizer.ggml.bos_token_id");
  metadata["tokenizer.ggml.add_bos_token"] = true;
  EXPECT_FALSE(load(std::move(metadata)).ok());
}

}  // namespace
}  // namespace hisparse::text
