#include "api/request_body.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace hisparse::api {
namespace {

std::string chat(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) +
         "}";
}

std::string completion(const std::string& fields) {
  return R"({"prompt":"hi")" + (fields.empty() ? "" : "," + fields) + "}";
}

RequestBody accepted(Endpoint endpoint, const std::string& json) {
  auto result = parse_request_body(endpoint, json);
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << json << " was refused: " << error->message;
    return {};
  }
  return std::get<RequestBody>(result);
}

ApiError refused(Endpoint endpoint, const std::string& json) {
  const auto result = parse_request_body(endpoint, json);
  if (!std::holds_alternative<ApiError>(result)) {
    ADD_FAILURE() << json << " was accepted";
    return {};
  }
  const auto& error = std::get<ApiError>(result);
  EXPECT_EQ(error.http_status, 400) << json;
  EXPECT_EQ(error.type, "invalid_request_error") << json;
  EXPECT_FALSE(error.message.empty()) << json;
  return error;
}

TEST(RequestBody, DefaultsAreThoseOfTheApi) {
  const RequestBody body = accepted(Endpoint::kChat, chat(""));
  EXPECT_FALSE(body.model);
  EXPECT_EQ(body.sampling.temperature, 1.0f);
  EXPECT_EQ(body.sampling.top_p, 1.0f);
  EXPECT_EQ(body.sampling.top_k, 0);
  EXPECT_FALSE(body.seed);
  EXPECT_FALSE(body.max_tokens);
  EXPECT_FALSE(body.sampling.ignore_eos);
  EXPECT_TRUE(body.sampling.stop.empty());
  EXPECT_EQ(body.delivery, Delivery::kWhole);
  EXPECT_EQ(body.stream_usage, StreamUsage::kOmit);
}

TEST(RequestBody, EveryFieldIsRead) {
  const RequestBody body = accepted(Endpoint::kChat, chat(R"(
    "model":"m","temperature":0.5,"top_p":0.25,"top_k":7,"seed":-3,"max_tokens":5,
    "max_completion_tokens":6,"stop":["a","b"],"stop_token_ids":[1,2],"ignore_eos":true,
    "stream":true,"stream_options":{"include_usage":true},"cache_salt":"s","n":1)"));
  EXPECT_EQ(body.model, "m");
  EXPECT_EQ(body.sampling.temperature, 0.5f);
  EXPECT_EQ(body.sampling.top_p, 0.25f);
  EXPECT_EQ(body.sampling.top_k, 7);
  EXPECT_EQ(body.seed, static_cast<std::uint64_t>(-3));
  EXPECT_EQ(body.max_tokens, 6);
  EXPECT_EQ(body.sampling.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(body.sampling.stop_token_ids, (std::vector<base::TokenId>{1, 2}));
  EXPECT_TRUE(body.sampling.ignore_eos);
  EXPECT_EQ(body.delivery, Delivery::kStream);
  EXPECT_EQ(body.stream_usage, StreamUsage::kInclude);
  EXPECT_EQ(body.cache_salt, "s");
}

TEST(RequestBody, NullMeansNotGiven) {
  for (const char* name : {"model",
                           "temperature",
                           "top_p",
                           "top_k",
                           "seed",
                           "max_tokens",
                           "max_completion_tokens",
                           "stop",
                           "stop_token_ids",
                           "ignore_eos",
                           "stream",
                           "stream_options",
                           "n",
                           "cache_salt",
                           "tools",
                           "tool_choice",
                           "logprobs",
                           "top_logprobs",
                           "response_format",
                           "logit_bias",
                           "best_of",
                           "echo",
                           "suffix",
                           "reasoning_effort",
                           "modalities",
                           "prediction"}) {
    const std::string field = std::string("\"") + name + "\":null";
    accepted(Endpoint::kChat, chat(field));
    accepted(Endpoint::kCompletion, completion(field));
  }
}

TEST(RequestBody, HarmlessValuesAreAccepted) {
  for (const char* fields :
       {R"("unknown":{"deep":[1]},"user":"u","metadata":{},"store":true,"service_tier":"auto")",
        R"("n":1,"best_of":1,"presence_penalty":0,"frequency_penalty":0.0,"min_p":0)",
        R"("repetition_penalty":1.0,"logit_bias":{},"logprobs":false,"echo":false,"suffix":"")",
        R"("tools":[],"tool_choice":"none","response_format":{"type":"text"})",
        R"("tool_choice":"auto","modalities":["text"],"parallel_tool_calls":true)",
        R"("stream":true,"stream_options":{})", R"("top_k":-1)", R"("temperature":3)",
        R"("temperature":-0.0)", R"("max_tokens":16.0)", R"("stop":[])",
        R"("stream":true,"stream_options":{"include_obfuscation":true})",
        R"("min_tokens":0,"skip_special_tokens":true,"reasoning_effort":"none")"}) {
    accepted(Endpoint::kChat, chat(fields));
    accepted(Endpoint::kCompletion, completion(fields));
  }
}

struct BadField {
  const char* json;
  const char* param;
};

TEST(RequestBody, BadValuesNameTheirField) {
  const std::string long_stop = R"("stop":")" + std::string(1025, 'x') + "\"";
  std::string many_stops = R"("stop":["a")";
  for (int i = 0; i < 64; ++i) many_stops += ",\"a\"";
  many_stops += "]";
  const std::string long_salt = R"("cache_salt":")" + std::string(1025, 'x') + "\"";
  const BadField cases[] = {
      {R"("model":1)", "model"},
      {R"("temperature":-0.1)", "temperature"},
      {R"("temperature":"hot")", "temperature"},
      {R"("temperature":1e39)", "temperature"},
      {R"("temperature":true)", "temperature"},
      {R"("top_p":0)", "top_p"},
      {R"("top_p":1.01)", "top_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":1.5)", "top_k"},
      {R"("seed":1.5)", "seed"},
      {R"("seed":"7")", "seed"},
      {R"("seed":1e300)", "seed"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_tokens":-1)", "max_tokens"},
      {R"("max_tokens":"5")", "max_tokens"},
      {R"("max_tokens":[])", "max_tokens"},
      {R"("stop":"")", "stop"},
      {R"("stop":["a",""])", "stop"},
      {R"("stop":[null])", "stop"},
      {R"("stop":5)", "stop"},
      {R"("stop":{"a":1})", "stop"},
      {long_stop.c_str(), "stop"},
      {many_stops.c_str(), "stop"},
      {R"("stop_token_ids":[-1])", "stop_token_ids"},
      {R"("stop_token_ids":[4294967296])", "stop_token_ids"},
      {R"("stop_token_ids":["a"])", "stop_token_ids"},
      {R"("stop_token_ids":5)", "stop_token_ids"},
      {R"("ignore_eos":1)", "ignore_eos"},
      {R"("stream":"true")", "stream"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":false,"stream_options":{})", "stream_options"},
      {R"("stream":true,"stream_options":[])", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
      {R"("n":0)", "n"},
      {R"("n":"1")", "n"},
      {R"("cache_salt":"")", "cache_salt"},
      {R"("cache_salt":7)", "cache_salt"},
      {long_salt.c_str(), "cache_salt"},
  };
  for (const BadField& bad : cases) {
    for (const bool is_chat : {true, false}) {
      const ApiError error = is_chat ? refused(Endpoint::kChat, chat(bad.json))
                                     : refused(Endpoint::kCompletion, completion(bad.json));
      EXPECT_EQ(error.param, bad.param) << bad.json;
      EXPECT_EQ(error.code, "invalid_value") << bad.json;
    }
  }
}

TEST(RequestBody, SaltIsCountedInCharacters) {
  std::string salt;
  for (int i = 0; i < 1024; ++i) salt += "é";
  EXPECT_EQ(accepted(Endpoint::kChat, chat(R"("cache_salt":")" + salt + "\"")).cache_salt, salt);
}

TEST(RequestBody, WhatIsNotBuiltIsRefusedByName) {
  const BadField cases[] = {
      {R"("n":2)", "n"},
      {R"("best_of":2)", "best_of"},
      {R"("logprobs":true)", "logprobs"},
      {R"("logprobs":0)", "logprobs"},
      {R"("top_logprobs":1)", "top_logprobs"},
      {R"("prompt_logprobs":1)", "prompt_logprobs"},
      {R"("echo":true)", "echo"},
      {R"("suffix":"x")", "suffix"},
      {R"("logit_bias":{"1":1})", "logit_bias"},
      {R"("presence_penalty":0.1)", "presence_penalty"},
      {R"("frequency_penalty":-1)", "frequency_penalty"},
      {R"("repetition_penalty":1.1)", "repetition_penalty"},
      {R"("min_p":0.1)", "min_p"},
      {R"("min_tokens":1)", "min_tokens"},
      {R"("tools":[{"type":"function","function":{"name":"f"}}])", "tools"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("tool_choice":{"type":"function"})", "tool_choice"},
      {R"("functions":[{}])", "functions"},
      {R"("response_format":{"type":"json_object"})", "response_format"},
      {R"("response_format":"text")", "response_format"},
      {R"("modalities":["text","audio"])", "modalities"},
      {R"("audio":{})", "audio"},
      {R"("reasoning_effort":"high")", "reasoning_effort"},
      {R"("prediction":{})", "prediction"},
      {R"("web_search_options":{})", "web_search_options"},
      {R"("structured_outputs":{"json":{}})", "structured_outputs"},
      {R"("guided_json":{})", "guided_json"},
      {R"("guided_regex":"a")", "guided_regex"},
      {R"("use_beam_search":true)", "use_beam_search"},
      {R"("include_stop_str_in_output":true)", "include_stop_str_in_output"},
      {R"("skip_special_tokens":false)", "skip_special_tokens"},
      {R"("prompt_embeds":"x")", "prompt_embeds"},
      {R"("priority":1)", "priority"},
      {R"("stream":true,"stream_options":{"continuous_usage_stats":true})",
       "stream_options.continuous_usage_stats"},
  };
  for (const BadField& bad : cases) {
    for (const bool is_chat : {true, false}) {
      const ApiError error = is_chat ? refused(Endpoint::kChat, chat(bad.json))
                                     : refused(Endpoint::kCompletion, completion(bad.json));
      EXPECT_EQ(error.param, bad.param) << bad.json;
      EXPECT_EQ(error.code, "unsupported_parameter") << bad.json;
    }
  }
  // What the default is depends on the endpoint.
  accepted(Endpoint::kCompletion, completion(R"("add_special_tokens":true)"));
  accepted(Endpoint::kChat, chat(R"("add_special_tokens":false)"));
  EXPECT_EQ(refused(Endpoint::kChat, chat(R"("add_special_tokens":true)")).param,
            "add_special_tokens");
}

TEST(RequestBody, MessagesAreRead) {
  const RequestBody body = accepted(Endpoint::kChat, R"({"messages":[
      {"role":"developer","content":"d"},{"role":"system","content":""},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":null,"tool_calls":[]},{"role":"user","content":"ü","name":"x"}
    ]})");
  ASSERT_EQ(body.messages.size(), 5u);
  EXPECT_EQ(body.messages[0].role, "system");
  EXPECT_EQ(body.messages[2].content, "ab");
  EXPECT_EQ(body.messages[3].role, "assistant");
  EXPECT_EQ(body.messages[3].content, "");
  EXPECT_EQ(body.messages[4].content, "ü");
}

TEST(RequestBody, BadMessagesNameTheirPlace) {
  const BadField cases[] = {
      {R"({})", "messages"},
      {R"({"messages":null})", "messages"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":"hi"})", "messages"},
      {R"({"messages":["hi"]})", "messages[0]"},
      {R"({"messages":[{"content":"a"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":null}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":5}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":["a"]}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
       "messages[0].content"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"king","content":"b"}]})",
       "messages[1].role"},
      {R"({"messages":[{"role":"tool","content":"a"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"function","content":"a"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{}]}]})",
       "messages[0].tool_calls"},
  };
  for (const BadField& bad : cases) {
    EXPECT_EQ(refused(Endpoint::kChat, bad.json).param, bad.param) << bad.json;
  }
}

TEST(RequestBody, PromptsAreRead) {
  using Ids = std::vector<base::TokenId>;
  const auto prompt = [](const std::string& json) {
    return accepted(Endpoint::kCompletion, "{\"prompt\":" + json + "}").prompt;
  };
  EXPECT_EQ(std::get<std::string>(prompt(R"("hi")")), "hi");
  EXPECT_EQ(std::get<std::string>(prompt(R"(["hi"])")), "hi");
  EXPECT_EQ(std::get<Ids>(prompt("[1,2,3]")), (Ids{1, 2, 3}));
  EXPECT_EQ(std::get<Ids>(prompt("[[4]]")), (Ids{4}));
}

TEST(RequestBody, BadPromptsAreRefused) {
  for (const char* json :
       {"{}", R"({"prompt":null})", R"({"prompt":""})", R"({"prompt":[]})", R"({"prompt":[""]})",
        R"({"prompt":[[]]})", R"({"prompt":["a","b"]})", R"({"prompt":[[1],[2]]})",
        R"({"prompt":[1,"a"]})", R"({"prompt":[-1]})", R"({"prompt":[1.5]})", R"({"prompt":7})",
        R"({"prompt":{"a":1}})", R"({"prompt":[4294967296]})"}) {
    EXPECT_EQ(refused(Endpoint::kCompletion, json).param, "prompt") << json;
  }
}

TEST(RequestBody, BrokenBodiesAreInvalidJson) {
  const std::string deep(100'000, '[');
  const std::string gbk = "{\"prompt\":\"\xc4\xe3\"}";
  const std::string wide = [] {
    std::string json = "{\"prompt\":\"a\"";
    for (int i = 0; i < 2000; ++i) json += ",\"x\":0";
    return json + "}";
  }();
  for (const std::string& json :
       {std::string(), std::string("{"), std::string("[1]"), std::string("5"), std::string("\"a\""),
        std::string("null"), std::string("{\"prompt\":\"a\"} x"),
        std::string("{\"prompt\":\"a\",\"temperature\":1e400}"),
        std::string("{\"prompt\":\"a\",\"temperature\":NaN}"),
        std::string("{\"prompt\":\"\\ud800\"}"), std::string("{\"prompt\":\"\\udc00\"}"),
        std::string("{\"prompt\":\"\\ud800\\u0041\"}"), std::string("{\"prompt\":\"a\0b\"}", 16),
        deep, gbk, wide, std::string("{\"prompt\":\"a\",\"seed\":99999999999999999999999999}")}) {
    EXPECT_EQ(refused(Endpoint::kCompletion, json).code, "invalid_json") << json.substr(0, 60);
  }
}

TEST(RequestBody, LastOfDuplicateKeysCounts) {
  EXPECT_EQ(accepted(Endpoint::kCompletion, R"({"prompt":"a","prompt":"b","top_k":-9,"top_k":3})")
                .sampling.top_k,
            3);
}

TEST(RequestBody, TinyTopPStaysAboveZero) {
  EXPECT_GT(accepted(Endpoint::kChat, chat(R"("top_p":1e-60)")).sampling.top_p, 0.0f);
}

TEST(RequestBody, MaxCompletionTokensIsAFieldOfChatOnly) {
  EXPECT_EQ(accepted(Endpoint::kChat, chat(R"("max_completion_tokens":9)")).max_tokens, 9);
  EXPECT_FALSE(
      accepted(Endpoint::kCompletion, completion(R"("max_completion_tokens":9)")).max_tokens);
}

}  // namespace
}  // namespace hisparse::api
