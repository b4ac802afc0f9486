#include <string>

#include "gtest/gtest.h"
#include "http/credentials.h"
#include "http/http_counters.h"
#include "http/reply.h"
#include "http/route.h"

namespace hisparse::http {
namespace {

TEST(Route, PathsAreFoundAndQueriesIgnored) {
  EXPECT_EQ(parse_target("/v1/chat/completions").route, Route::kChatCompletions);
  EXPECT_EQ(parse_target("/v1/completions?a=b").route, Route::kCompletions);
  EXPECT_EQ(parse_target("/health").route, Route::kHealth);
  EXPECT_EQ(parse_target("/v1/models").route, Route::kModels);
  for (const char* target : {"", "/", "*", "/v1", "/v1/models/", "/healthx", "/v2/completions"}) {
    EXPECT_EQ(parse_target(target).route, Route::kUnknown) << target;
  }
}

TEST(Route, ModelIdIsTheRestOfThePathDecoded) {
  EXPECT_EQ(parse_target("/v1/models/org/name?x").model_id, "org/name");
  EXPECT_EQ(parse_target("/v1/models/org%2Fname").model_id, "org/name");
  EXPECT_EQ(parse_target("/v1/models/50%").model_id, "50%");
  EXPECT_EQ(parse_target("/v1/models/a%2").model_id, "a%2");
  EXPECT_EQ(parse_target("/v1/models/a%zz").model_id, "a%zz");
  EXPECT_EQ(parse_target("/v1/models/a%2z").model_id, "a%2z");
}

TEST(Route, OnlyProbesAreOpen) {
  EXPECT_TRUE(is_open(Route::kHealth));
  EXPECT_TRUE(is_open(Route::kReady));
  EXPECT_TRUE(is_open(Route::kPing));
  EXPECT_TRUE(is_open(Route::kVersion));
  EXPECT_FALSE(is_open(Route::kMetrics));
  EXPECT_FALSE(is_open(Route::kModels));
  EXPECT_FALSE(is_open(Route::kUnknown));
}

TEST(ApiKeys, EveryKeyOpensInEitherHeader) {
  const ApiKeys keys({"alpha", "b"});
  EXPECT_TRUE(keys.accept("Bearer alpha", ""));
  EXPECT_TRUE(keys.accept("bearer  b", ""));
  EXPECT_TRUE(keys.accept("", "alpha"));
  EXPECT_TRUE(keys.accept("Bearer wrong", "b"));
}

TEST(ApiKeys, NothingElseOpens) {
  const ApiKeys keys({"alpha"});
  for (const char* authorization :
       {"", "Bearer", "Bearer ", "Bearer alph", "Bearer alphaa", "Bearer alphaalpha", "Basic alpha",
        "alpha", "Bearer Alpha", "Bearer \x80"}) {
    EXPECT_FALSE(keys.accept(authorization, "")) << authorization;
  }
  EXPECT_FALSE(keys.accept("", "alphb"));
  EXPECT_FALSE(ApiKeys({""}).accept("Bearer ", ""));
}

TEST(ApiKeys, NoKeysMeansOpen) { EXPECT_TRUE(ApiKeys({}).accept("", "")); }

TEST(RequestId, SafeIdsAreEchoedAndOthersReplaced) {
  const auto entropy = [] { return std::uint64_t{0xab}; };
  const std::string fresh = "00000000000000ab00000000000000ab";
  EXPECT_EQ(request_id_from("req-1/A", entropy), "req-1/A");
  EXPECT_EQ(request_id_from(std::string(128, 'x'), entropy), std::string(128, 'x'));
  for (const std::string& bad : {std::string(), std::string(129, 'x'), std::string("a b"),
                                 std::string("a\tb"), std::string("\xc3\xa9")}) {
    EXPECT_EQ(request_id_from(bad, entropy), fresh) << bad;
  }
}

TEST(Counters, AnswersAreCountedByRouteMethodAndCode) {
  HttpCounters counters;
  counters.add(Route::kHealth, Method::kGet, 200);
  counters.add(Route::kHealth, Method::kGet, 200);
  counters.add(Route::kModel, Method::kGet, 404);
  const auto counts = counters.snapshot();
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_EQ(counts[0].route, "/v1/models/{id}");
  EXPECT_EQ(counts[0].code, 404);
  EXPECT_EQ(counts[1].count, 2);
}

TEST(Reply, PiecesAreFramedAsChunks) {
  EXPECT_EQ(render_piece("0123456789abcdef", Framing::kChunked), "10\r\n0123456789abcdef\r\n");
  EXPECT_EQ(render_piece("", Framing::kChunked), "0\r\n\r\n");
  EXPECT_EQ(render_piece("ab", Framing::kUntilClose), "ab");
}

TEST(Reply, ErrorsCarryTheHeadersOfTheirStatus) {
  const auto has = [](const Reply& reply, std::string_view name) {
    for (const Header& header : reply.headers) {
      if (header.name == name) return true;
    }
    return false;
  };
  EXPECT_TRUE(has(error_reply(api::invalid_api_key()), "WWW-Authenticate"));
  EXPECT_TRUE(has(error_reply(api::unavailable("x", "y")), "Retry-After"));
  EXPECT_FALSE(has(error_reply(api::internal_error()), "Retry-After"));
}

}  // namespace
}  // namespace hisparse::http
