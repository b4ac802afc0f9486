#include "format/metadata.h"

#include "format/json_metadata.h"
#include "format/untrusted_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hisparse::format {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<Metadata> from_json(std::string_view text) {
  absl::StatusOr<MetadataMap> values = parse_json_metadata(text, "config.json", "");
  if (!values.ok()) return values.status();
  return Metadata(*std::move(values));
}

std::string error_of(std::string_view text) {
  const auto parsed = from_json(text);
  if (parsed.ok()) return "(accepted)";
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

template <typename T>
std::string message_of(const absl::StatusOr<T>& result) {
  return std::string(result.status().message());
}

TEST(Metadata, RequiredValuesNameTheAbsentKey) {
  const Metadata none;
  EXPECT_TRUE(absl::IsNotFound(none.get_int("llama.block_count").status()));
  EXPECT_THAT(message_of(none.get_int("llama.block_count")), HasSubstr("'llama.block_count'"));
  EXPECT_TRUE(absl::IsNotFound(none.get_double("x").status()));
  EXPECT_TRUE(absl::IsNotFound(none.get_bool("x").status()));
  EXPECT_TRUE(absl::IsNotFound(none.get_string("x").status()));
  EXPECT_TRUE(absl::IsNotFound(none.get_strings("x").status()));
  EXPECT_TRUE(absl::IsNotFound(none.get_ints("x").status()));
}

TEST(Metadata, WrongKindsNameTheKeyAndBothKinds) {
  const Metadata metadata({{"real", 2.0}, {"text", std::string("2")}, {"flag", true}});
  EXPECT_THAT(message_of(metadata.get_int("real")),
              AllOf(HasSubstr("'real'"), HasSubstr("an integer"), HasSubstr("floating-point")));
  EXPECT_THAT(message_of(metadata.get_double("text")), HasSubstr("a string"));
  EXPECT_THAT(message_of(metadata.get_bool("text")), HasSubstr("a boolean"));
  EXPECT_THAT(message_of(metadata.get_string("flag")), HasSubstr("a boolean"));
  EXPECT_THAT(message_of(metadata.get_int("flag")), HasSubstr("a boolean"));
  EXPECT_THAT(message_of(metadata.get_strings("text")), HasSubstr("a list of strings"));
  EXPECT_THAT(message_of(metadata.get_ints("text")), HasSubstr("a list of integers"));
}

TEST(Metadata, FallbackCoversAbsenceOnly) {
  const Metadata metadata({{"int", std::int64_t{3}}, {"text", std::string("a")}});
  EXPECT_EQ(*metadata.int_or("int", 9), 3);
  EXPECT_EQ(*metadata.int_or("other", 9), 9);
  EXPECT_EQ(*metadata.double_or("int", 9.5), 3.0);
  EXPECT_EQ(*metadata.double_or("other", 9.5), 9.5);
  EXPECT_EQ(*metadata.bool_or("other", true), true);
  EXPECT_EQ(*metadata.string_or("text", "b"), "a");
  EXPECT_EQ(*metadata.string_or("other", "b"), "b");
  EXPECT_TRUE(absl::IsInvalidArgument(metadata.int_or("text", 9).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(metadata.bool_or("int", false).status()));
}

TEST(JsonMetadata, FlattensObjectsToDottedKeys) {
  const auto parsed = from_json(R"({
    "hidden_size": 576, "eps": 1e-05, "tied": true, "type": "llama", "head_dim": null,
    "rope_scaling": {"factor": 8.0, "inner": {"deep": -1}}, "empty": {}})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed->get_int("hidden_size"), 576);
  EXPECT_EQ(*parsed->get_double("eps"), 1e-5);
  EXPECT_EQ(*parsed->get_bool("tied"), true);
  EXPECT_EQ(*parsed->get_string("type"), "llama");
  EXPECT_EQ(*parsed->get_double("rope_scaling.factor"), 8.0);
  EXPECT_EQ(*parsed->get_int("rope_scaling.inner.deep"), -1);
  EXPECT_EQ(parsed->values().size(), 6u);  // null and {} are absent
}

TEST(JsonMetadata, KeepsListsOfOneScalarKind) {
  const auto parsed =
      from_json(R"({"s":["a","b"],"i":[1,-2],"r":[1,0.5],"b":[true,false],"none":[]})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(**parsed->get_strings("s"), ElementsAre("a", "b"));
  EXPECT_THAT(**parsed->get_ints("i"), ElementsAre(1, -2));
  EXPECT_THAT(std::get<std::vector<double>>(*parsed->find("r")), ElementsAre(1.0, 0.5));
  EXPECT_THAT(**parsed->get_ints("b"), ElementsAre(1, 0));
  EXPECT_TRUE((*parsed->get_strings("none"))->empty());
}

TEST(JsonMetadata, OtherListsAreFlattenedWithTheirIndex) {
  const auto parsed = from_json(R"({"l":[{"type":"full"},{"type":"sliding"}],"m":[1,"a",null],
                                    "n":[[1,2],[3]]})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed->get_string("l.1.type"), "sliding");
  EXPECT_EQ(*parsed->get_int("m.0"), 1);
  EXPECT_EQ(*parsed->get_string("m.1"), "a");
  EXPECT_FALSE(parsed->has("m.2"));
  EXPECT_FALSE(parsed->has("m"));
  EXPECT_THAT(**parsed->get_ints("n.0"), ElementsAre(1, 2));
}

TEST(JsonMetadata, PrefixesEveryKey) {
  const auto values = parse_json_metadata(R"({"a":{"b":1}})", "g.json", "generation_config.");
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->count("generation_config.a.b"), 1u);
  EXPECT_EQ(values->size(), 1u);
}

TEST(JsonMetadata, RefusesWhatItCannotHold) {
  const auto nested = [](int depth) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += "{\"a\":";
    return text + "1" + std::string(static_cast<std::size_t>(depth), '}');
  };
  EXPECT_THAT(error_of(""), HasSubstr("config.json: is not valid JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("JSON object"));
  EXPECT_THAT(error_of(R"({"a":1,"a":2})"), HasSubstr("'a' twice"));
  EXPECT_THAT(error_of(R"({"o":{"x":1,"x":1}})"), HasSubstr("'x' twice"));
  EXPECT_THAT(error_of(R"({"a":{"b":1},"a.b":2})"),
              HasSubstr("two members flatten to the key 'a.b'"));
  EXPECT_THAT(error_of(R"({"a":9223372036854775808})"), HasSubstr("9223372036854775808"));
  EXPECT_EQ(error_of(R"({"a":9223372036854775807,"b":-9223372036854775808})"), "(accepted)");
  EXPECT_THAT(error_of(R"({"a":-9223372036854775809})"), HasSubstr("64 signed bits"));
  EXPECT_THAT(error_of(R"({"a":1e999})"), HasSubstr("JSON"));
  EXPECT_THAT(error_of(R"({"a":NaN})"), HasSubstr("JSON"));
  EXPECT_THAT(error_of("{\"a\":\"\xc3\x28\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of(std::string("{}\0", 3)), HasSubstr("NUL"));
  EXPECT_THAT(error_of("{} x"), HasSubstr("JSON"));
  EXPECT_EQ(error_of(nested(32)), "(accepted)");
  EXPECT_THAT(error_of(nested(33)), HasSubstr("deeper than 32"));
  EXPECT_THAT(error_of("{\"" + std::string(1025, 'k') + "\":1}"), HasSubstr("1024"));
  EXPECT_EQ(error_of("{\"" + std::string(1024, 'k') + "\":1}"), "(accepted)");
}

TEST(JsonMetadata, BoundsBytesAndValues) {
  EXPECT_THAT(error_of("{}" + std::string(16u << 20, ' ')), HasSubstr("the limit is 16777216"));
  std::string many = R"({"a":[0)";
  for (int i = 0; i < (1 << 20); ++i) many += ",0";
  EXPECT_THAT(error_of(many + "]}"), HasSubstr("more than 1048576 values"));
}

TEST(UntrustedText, Utf8FollowsTheUnicodeTable) {
  for (const char* good : {"", "ascii", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_valid_utf8(good)) << in_quotes(good);
  }
  for (const char* bad : {"\x80", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x9f\xbf", "\xe1\x80",
                          "\xe1\x80\x41", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                          "\xf1\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_FALSE(is_valid_utf8(bad)) << in_quotes(bad);
  }
}

TEST(UntrustedText, SequenceCutByTheEndIsNotCompletedFromBehindIt) {
  for (const std::string_view whole : {"\xc2\x80", "\xe0\xa0\x80", "\xf0\x90\x80\x80"}) {
    for (std::size_t size = 1; size < whole.size(); ++size) {
      EXPECT_FALSE(is_valid_utf8(whole.substr(0, size))) << in_quotes(whole);
    }
  }
}

TEST(UntrustedText, QuotesAreHarmlessAndShort) {
  EXPECT_EQ(in_quotes("a\n\x1b[31m"), "'a\\x0a\\x1b[31m'");
  EXPECT_EQ(in_quotes(std::string(500, 'x')), "'" + std::string(120, 'x') + "'... (500 bytes)");
}

}  // namespace
}  // namespace hisparse::format
