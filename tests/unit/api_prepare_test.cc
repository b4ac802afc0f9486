#include "api/prepare.h"

#include <string>

#include "api_fakes.h"
#include "gtest/gtest.h"

namespace hisparse::api {
namespace {

class PrepareTest : public testing::Test {
 protected:
  PrepareTest() {
    model_.name = "served";
    model_.tokenizer = &tokenizer_;
    model_.chat_template = &template_;
    model_.max_model_len = 40;
  }

  Result<engine::Request> run(Endpoint endpoint, const std::string& json) {
    auto body = parse_request_body(endpoint, json);
    EXPECT_TRUE(std::holds_alternative<RequestBody>(body)) << json;
    return prepare(std::get<RequestBody>(std::move(body)), model_, {"id", [] { return 77u; }});
  }
  engine::Request accepted(Endpoint endpoint, const std::string& json) {
    auto result = run(endpoint, json);
    if (const auto* error = std::get_if<ApiError>(&result)) {
      ADD_FAILURE() << error->message;
      return {};
    }
    return std::get<engine::Request>(std::move(result));
  }
  ApiError refused(Endpoint endpoint, const std::string& json) {
    auto result = run(endpoint, json);
    if (!std::holds_alternative<ApiError>(result)) {
      ADD_FAILURE() << json << " was accepted";
      return {};
    }
    return std::get<ApiError>(result);
  }

  ByteTokenizer tokenizer_;
  PlainTemplate template_;
  ServedModel model_;
};

constexpr char kChat[] = R"({"messages":[{"role":"user","content":"hi"}])";  // "user=hi;": 8 tokens

TEST_F(PrepareTest, ChatIsRenderedAndTakesTheRestOfTheContext) {
  const auto request = accepted(Endpoint::kChat, std::string(kChat) + "}");
  EXPECT_EQ(std::string(request.prompt.begin(), request.prompt.end()), "user=hi;");
  EXPECT_EQ(tokenizer_.user_bytes, 2u);
  EXPECT_EQ(request.sampling.max_tokens, 32);
  EXPECT_EQ(request.id, "id");
}

TEST_F(PrepareTest, SeedComesFromTheRequestOrFromEntropy) {
  EXPECT_EQ(accepted(Endpoint::kChat, std::string(kChat) + "}").sampling.seed, 77u);
  EXPECT_EQ(accepted(Endpoint::kChat, std::string(kChat) + R"(,"seed":null})").sampling.seed, 77u);
  EXPECT_EQ(accepted(Endpoint::kChat, std::string(kChat) + R"(,"seed":0})").sampling.seed, 0u);
  // -1 is how vLLM's and llama.cpp's users say "random"; all 64 bits are seeds.
  EXPECT_EQ(accepted(Endpoint::kChat, std::string(kChat) + R"(,"seed":-1})").sampling.seed, 77u);
  EXPECT_EQ(accepted(Endpoint::kChat, std::string(kChat) + R"(,"seed":9223372036854775808})")
                .sampling.seed,
            std::uint64_t{1} << 63);
}

TEST_F(PrepareTest, CompletionDefaultsToSixteenTokensOrTheRoomThereIs) {
  EXPECT_EQ(accepted(Endpoint::kCompletion, R"({"prompt":"hi"})").sampling.max_tokens, 16);
  const std::string prompt(35, 'x');
  EXPECT_EQ(accepted(Endpoint::kCompletion, R"({"prompt":")" + prompt + "\"}").sampling.max_tokens,
            5);
}

TEST_F(PrepareTest, RawPromptsStartWithBosWhereTheModelSaysSoButTokenIdsStay) {
  const ByteTokenizer adding(ByteTokenizer::Bos::kAdded);
  model_.tokenizer = &adding;
  EXPECT_EQ(accepted(Endpoint::kCompletion, R"({"prompt":"a"})").prompt,
            (std::vector<base::TokenId>{256, 'a'}));
  EXPECT_EQ(accepted(Endpoint::kCompletion, R"({"prompt":[5]})").prompt,
            (std::vector<base::TokenId>{5}));
  EXPECT_EQ(accepted(Endpoint::kChat, std::string(kChat) + "}").prompt.front(), 'u');
}

TEST_F(PrepareTest, PromptOverTheContextIsTold) {
  for (const std::size_t length : {40u, 41u, 1000u}) {
    const auto error =
        refused(Endpoint::kCompletion, R"({"prompt":")" + std::string(length, 'x') + "\"}");
    EXPECT_EQ(error.http_status, 400);
    EXPECT_EQ(error.code, "context_length_exceeded");
    EXPECT_EQ(error.param, "prompt");
    EXPECT_EQ(error.n_prompt_tokens, static_cast<std::int64_t>(length));
    EXPECT_EQ(error.max_model_len, 40);
    EXPECT_NE(error.message.find("maximum context length is 40 tokens"), std::string::npos);
  }
}

TEST_F(PrepareTest, AHopelesslyLongPromptIsRefusedBeforeItIsTokenised) {
  const std::string text(100'000, 'x');
  EXPECT_NE(
      refused(Endpoint::kCompletion, R"({"prompt":")" + text + "\"}").message.find("at least"),
      std::string::npos);
  EXPECT_EQ(
      refused(Endpoint::kChat, R"({"messages":[{"role":"user","content":")" + text + "\"}]}").code,
      "context_length_exceeded");
  EXPECT_EQ(tokenizer_.encoded_bytes, 0u);
}

// The engine would refuse an answer that the cache cannot hold: without a wish it is what fits.
TEST_F(PrepareTest, WithoutAWishTheAnswerFitsTheCacheToo) {
  model_.kv_cache_tokens = 20;
  const engine::Request request = accepted(Endpoint::kChat, std::string(kChat) + "}");
  EXPECT_EQ(static_cast<std::int64_t>(request.prompt.size()) + request.sampling.max_tokens - 1, 20);
}

TEST_F(PrepareTest, ExplicitMaxTokensMustFit) {
  EXPECT_EQ(
      accepted(Endpoint::kChat, std::string(kChat) + R"(,"max_tokens":32})").sampling.max_tokens,
      32);
  for (const char* asked : {"33", "2147483648", "9223372036854775807"}) {
    const auto error =
        refused(Endpoint::kChat, std::string(kChat) + ",\"max_tokens\":" + asked + "}");
    EXPECT_EQ(error.code, "context_length_exceeded") << asked;
    EXPECT_EQ(error.param, "messages");
  }
}

TEST_F(PrepareTest, UnknownModelIsNotFound) {
  accepted(Endpoint::kChat, std::string(kChat) + R"(,"model":"served"})");
  const auto error = refused(Endpoint::kChat, std::string(kChat) + R"(,"model":"other"})");
  EXPECT_EQ(error.http_status, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_EQ(error.param, "model");
}

TEST_F(PrepareTest, TemplateErrorsAreTheRequestsFault) {
  for (const char* content : {"raise", "flood"}) {
    const auto error = refused(Endpoint::kChat, R"({"messages":[{"role":"user","content":")" +
                                                    std::string(content) + "\"}]}");
    EXPECT_EQ(error.http_status, 400) << content;
    EXPECT_EQ(error.param, "messages");
  }
  model_.chat_template = nullptr;
  EXPECT_EQ(refused(Endpoint::kChat, std::string(kChat) + "}").code, "unsupported_parameter");
}

TEST_F(PrepareTest, IdsOutsideTheVocabularyAreRefused) {
  accepted(Endpoint::kCompletion, R"({"prompt":[257],"stop_token_ids":[257]})");
  EXPECT_EQ(refused(Endpoint::kCompletion, R"({"prompt":[258]})").param, "prompt");
  EXPECT_EQ(refused(Endpoint::kCompletion, R"({"prompt":[1],"stop_token_ids":[258]})").param,
            "stop_token_ids");
}

TEST_F(PrepareTest, SaltAndSamplingReachTheEngine) {
  const auto request = accepted(
      Endpoint::kChat,
      std::string(kChat) + R"(,"cache_salt":"tenant","temperature":0,"stop":"x","top_k":3})");
  EXPECT_EQ(request.cache_salt, "tenant");
  EXPECT_EQ(request.sampling.temperature, 0.0f);
  EXPECT_EQ(request.sampling.stop, (std::vector<std::string>{"x"}));
  EXPECT_EQ(request.sampling.top_k, 3);
}

}  // namespace
}  // namespace hisparse::api
