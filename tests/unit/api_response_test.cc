#include "api/response.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hisparse::api {
namespace {

using nlohmann::json;

ResponseHead head(Endpoint endpoint) {
  return {endpoint, response_id(endpoint, "r1"), 1790000000, "m\"odel", "fp"};
}

engine::OutputChunk piece(std::string text) {
  engine::OutputChunk chunk;
  chunk.text = std::move(text);
  chunk.usage = {9, 2, 4};
  return chunk;
}

engine::OutputChunk finished(std::string text, engine::FinishReason reason) {
  engine::OutputChunk chunk = piece(std::move(text));
  chunk.finish.emplace();
  chunk.finish->reason = reason;
  return chunk;
}

// Splits a stream; checks the framing of every event.
std::vector<std::string> events(const std::string& stream) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << stream;
    if (end == std::string::npos) break;
    const std::string event = stream.substr(at, end - at);
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    EXPECT_EQ(event.find('\n'), std::string::npos) << event;
    found.push_back(event.substr(6));
    at = end + 2;
  }
  return found;
}

TEST(Response, ChatHasEveryKeyThatTheSchemaWants) {
  const json body = json::parse(
      render_response(head(Endpoint::kChat), finished("Hi", engine::FinishReason::kStop)));
  EXPECT_EQ(body["id"], "chatcmpl-r1");
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["created"], 1790000000);
  EXPECT_EQ(body["model"], "m\"odel");
  EXPECT_EQ(body["system_fingerprint"], "fp");
  ASSERT_EQ(body["choices"].size(), 1u);
  const json& choice = body["choices"][0];
  EXPECT_EQ(choice["index"], 0);
  EXPECT_EQ(choice["message"],
            json::parse(R"({"role":"assistant","content":"Hi","refusal":null})"));
  EXPECT_TRUE(choice.contains("logprobs") && choice["logprobs"].is_null());
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice.contains("stop_reason") && choice["stop_reason"].is_null());
  EXPECT_EQ(body["usage"], json::parse(R"({"prompt_tokens":9,"completion_tokens":2,
      "total_tokens":11,"prompt_tokens_details":{"cached_tokens":4}})"));
}

TEST(Response, CompletionCarriesText) {
  const json body = json::parse(
      render_response(head(Endpoint::kCompletion), finished("Hi", engine::FinishReason::kLength)));
  EXPECT_EQ(body["id"], "cmpl-r1");
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "Hi");
  EXPECT_FALSE(body["choices"][0].contains("message"));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
}

TEST(Response, StopReasonTellsWhatMatched) {
  auto chunk = finished("", engine::FinishReason::kStop);
  chunk.finish->stop_string = "END";
  EXPECT_EQ(json::parse(render_response(head(Endpoint::kChat), chunk))["choices"][0]["stop_reason"],
            "END");
  chunk.finish->stop_string.reset();
  chunk.finish->stop_token = 5;
  EXPECT_EQ(json::parse(render_response(head(Endpoint::kChat), chunk))["choices"][0]["stop_reason"],
            5);
}

TEST(Stream, ChatStartsWithTheRoleAndEndsWithDone) {
  const StreamRenderer renderer(head(Endpoint::kChat), StreamUsage::kInclude);
  const auto all = events(renderer.begin() + renderer.render(piece("He\"l\n")) +
                          renderer.render(finished("lo", engine::FinishReason::kStop)));
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all.back(), "[DONE]");
  std::vector<json> chunks;
  for (std::size_t i = 0; i + 1 < all.size(); ++i) chunks.push_back(json::parse(all[i]));
  for (const json& chunk : chunks) {
    EXPECT_EQ(chunk["id"], "chatcmpl-r1");
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_EQ(chunk["created"], 1790000000);
    EXPECT_EQ(chunk["model"], "m\"odel");
    EXPECT_TRUE(chunk.contains("usage"));
  }
  EXPECT_EQ(chunks[0]["choices"][0]["delta"], json::parse(R"({"role":"assistant","content":""})"));
  EXPECT_EQ(chunks[1]["choices"][0]["delta"], json::parse(R"({"content":"He\"l\n"})"));
  EXPECT_EQ(chunks[2]["choices"][0]["delta"], json::parse(R"({"content":"lo"})"));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(chunks[i]["choices"][0].contains("finish_reason"));
    EXPECT_TRUE(chunks[i]["choices"][0]["finish_reason"].is_null());
    EXPECT_TRUE(chunks[i]["usage"].is_null());
  }
  EXPECT_EQ(chunks[3]["choices"][0]["delta"], json::object());
  EXPECT_EQ(chunks[3]["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(chunks[3]["usage"].is_null());
  EXPECT_EQ(chunks[4]["choices"], json::array());
  EXPECT_EQ(chunks[4]["usage"]["prompt_tokens"], 9);
  EXPECT_EQ(chunks[4]["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
}

TEST(Stream, CompletionHasNoRoleChunk) {
  const StreamRenderer renderer(head(Endpoint::kCompletion), StreamUsage::kOmit);
  EXPECT_EQ(renderer.begin(), "");
  const auto all = events(renderer.render(finished("x", engine::FinishReason::kLength)));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(json::parse(all[0])["object"], "text_completion");
  EXPECT_EQ(json::parse(all[0])["choices"][0]["text"], "x");
  EXPECT_EQ(json::parse(all[1])["choices"][0]["text"], "");
  EXPECT_EQ(json::parse(all[1])["choices"][0]["finish_reason"], "length");
}

TEST(Stream, UsageIsAbsentUnlessAskedFor) {
  const StreamRenderer renderer(head(Endpoint::kChat), StreamUsage::kOmit);
  const auto all =
      events(renderer.begin() + renderer.render(finished("x", engine::FinishReason::kStop)));
  ASSERT_EQ(all.size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FALSE(json::parse(all[i]).contains("usage"));
}

TEST(Stream, ChunkWithoutTextSaysNothing) {
  const StreamRenderer renderer(head(Endpoint::kChat), StreamUsage::kInclude);
  EXPECT_EQ(renderer.render(piece("")), "");
}

TEST(Stream, FailureIsOneErrorEventWithoutDone) {
  const StreamRenderer renderer(head(Endpoint::kChat), StreamUsage::kInclude);
  auto chunk = finished("part", engine::FinishReason::kError);
  chunk.finish->status = absl::InternalError("/secret/path");
  const auto all = events(renderer.render(chunk));
  ASSERT_EQ(all.size(), 2u);
  const json error = json::parse(all[1]);
  EXPECT_EQ(error.size(), 1u);
  EXPECT_EQ(error["error"]["type"], "server_error");
  EXPECT_EQ(all[1].find("secret"), std::string::npos);
}

TEST(Stream, BadBytesBecomeReplacementCharacters) {
  const StreamRenderer renderer(head(Endpoint::kChat), StreamUsage::kOmit);
  const auto all = events(renderer.render(piece("a\xff")));
  EXPECT_EQ(json::parse(all[0])["choices"][0]["delta"]["content"], "a\xEF\xBF\xBD");
}

TEST(Models, CardTellsTheContextLength) {
  ServedModel model;
  model.name = "org/m";
  model.max_model_len = 4096;
  const json list = json::parse(render_model_list(model));
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 1u);
  EXPECT_EQ(list["data"][0]["id"], "org/m");
  EXPECT_EQ(list["data"][0]["object"], "model");
  EXPECT_EQ(list["data"][0]["max_model_len"], 4096);
  EXPECT_EQ(json::parse(render_model(model)), list["data"][0]);
}

TEST(Errors, BodyHasTheFourKeys) {
  const json body = json::parse(render_error(internal_error()))["error"];
  for (const char* key : {"message", "type", "param", "code"}) EXPECT_TRUE(body.contains(key));
  EXPECT_TRUE(body["param"].is_null());
  EXPECT_TRUE(body["code"].is_string());
}

TEST(Errors, ClientBytesNeverBreakTheBody) {
  const std::string name = "\xff\xfe" + std::string(10'000, 'x');
  const std::string body = render_error(model_not_found(name));
  EXPECT_LT(body.size(), 1000u);
  EXPECT_EQ(json::parse(body)["error"]["code"], "model_not_found");
}

TEST(Errors, SubmitStatusesMapToTheTable) {
  const auto map = [](absl::Status status) { return from_submit_status(status, "prompt"); };
  EXPECT_EQ(map(absl::InvalidArgumentError("x")).http_status, 400);
  EXPECT_EQ(map(absl::OutOfRangeError("x")).code, "context_length_exceeded");
  EXPECT_EQ(map(absl::OutOfRangeError("x")).http_status, 400);
  const ApiError full = map(absl::ResourceExhaustedError("x"));
  EXPECT_EQ(full.http_status, 503);
  EXPECT_EQ(full.code, "queue_full");
  EXPECT_TRUE(full.retry_after_seconds);
  EXPECT_EQ(map(absl::UnavailableError("x")).http_status, 503);
  EXPECT_TRUE(map(absl::UnavailableError("x")).retry_after_seconds);
  const ApiError internal = map(absl::InternalError("/secret"));
  EXPECT_EQ(internal.http_status, 500);
  EXPECT_EQ(render_error(internal).find("secret"), std::string::npos);
}

}  // namespace
}  // namespace hisparse::api
