#include "http/server.h"

#include <string>

#include "http_fixture.h"
#include "nlohmann/json.hpp"

namespace hisparse::http {
namespace {

using engine::FinishReason;
using engine::Lifecycle;
using nlohmann::json;

class HttpServer : public ServerFixture {};

TEST_F(HttpServer, ServesTheSmallRoutes) {
  start();
  Client client(server_->port());
  client.send(get("/health"));
  Answer answer = client.answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, R"({"status":"ok"})");
  client.send(get("/v1/models"));
  EXPECT_EQ(json::parse(client.answer().body)["data"][0]["id"], "org/model");
  client.send(get("/v1/models/org/model"));
  EXPECT_EQ(json::parse(client.answer().body)["max_model_len"], 1000);
  client.send(get("/v1/models/other"));
  answer = client.answer();
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(json::parse(answer.body)["error"]["code"], "model_not_found");
  client.send(get("/version"));
  EXPECT_EQ(json::parse(client.answer().body)["version"], "1.2.3");
  client.send(get("/ping"));
  EXPECT_EQ(client.answer().status, 200);
  client.send(get("/metrics"));
  answer = client.answer();
  EXPECT_EQ(answer.body, "hisparse_up 1\n");
  EXPECT_TRUE(answer.header("Content-Type").starts_with("text/plain; version=0.0.4"));
}

TEST_F(HttpServer, HealthAndReadinessFollowTheEngine) {
  start();
  const auto status = [&](const char* route) { return ask(get(route)).status; };
  frontend_.set(Lifecycle::kStarting);
  EXPECT_EQ(ask(get("/health")).body, R"({"status":"loading"})");
  EXPECT_EQ(status("/health"), 200);
  EXPECT_EQ(status("/ready"), 503);
  EXPECT_EQ(ask(chat()).status, 503);
  frontend_.set(Lifecycle::kReady);
  EXPECT_EQ(status("/ready"), 200);
  frontend_.set_progress(false);
  EXPECT_EQ(status("/health"), 503);
  frontend_.set_progress(true);
  frontend_.set(Lifecycle::kDraining);
  EXPECT_EQ(status("/ready"), 503);
  EXPECT_EQ(status("/health"), 200);
  frontend_.set(Lifecycle::kFailed);
  EXPECT_EQ(status("/health"), 503);
  EXPECT_EQ(status("/ready"), 503);
  EXPECT_EQ(ask(chat()).status, 503);
  EXPECT_EQ(frontend_.submitted(), 0u);
}

TEST_F(HttpServer, UnknownRoutesAndMethodsAreJson) {
  start();
  Answer answer = ask(get("/nowhere"));
  EXPECT_EQ(answer.status, 404);
  EXPECT_TRUE(json::parse(answer.body)["error"].contains("message"));
  answer = ask(get("/v1/chat/completions"));
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.header("Allow"), "POST");
  answer = ask("DELETE /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.header("Allow"), "GET, HEAD");
  EXPECT_TRUE(json::parse(answer.body).contains("error"));
}

TEST_F(HttpServer, HeadIsGetWithoutTheBody) {
  start();
  Client client(server_->port());
  client.send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n" + get("/version"));
  const std::string head = client.take_until("\r\n\r\n");
  EXPECT_NE(head.find("200 OK"), std::string::npos);
  EXPECT_NE(head.find("Content-Length: 15"), std::string::npos);
  EXPECT_TRUE(client.answer().has("1.2.3"));
}

TEST_F(HttpServer, AnswersAChatRequest) {
  start();
  Client client(server_->port());
  client.send(chat(kChatBody, "X-Request-Id: my-id\r\n"));
  const Session session = frontend_.session();
  EXPECT_EQ(session.request.id, "my-id");
  EXPECT_EQ(session.request.sampling.max_tokens, 5);
  session.push("Hel");
  session.push("lo", FinishReason::kStop);
  const Answer answer = client.answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("X-Request-Id"), "my-id");
  const json body = json::parse(answer.body);
  EXPECT_EQ(body["id"], "chatcmpl-my-id");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hello");
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
  EXPECT_EQ(counted("/v1/chat/completions", 200), 1);
}

TEST_F(HttpServer, AnswersACompletion) {
  start();
  Client client(server_->port());
  client.send(post("/v1/completions", R"({"prompt":"ab"})"));
  const Session session = frontend_.session();
  EXPECT_EQ(session.request.prompt, (std::vector<base::TokenId>{'a', 'b'}));
  session.push("c", FinishReason::kLength);
  EXPECT_EQ(json::parse(client.answer().body)["choices"][0]["text"], "c");
}

TEST_F(HttpServer, EngineErrorsBecomeStatuses) {
  start();
  Client client(server_->port());
  client.send(chat());
  frontend_.session().push("", FinishReason::kError);
  const Answer failed = client.answer();
  EXPECT_EQ(failed.status, 500);
  EXPECT_FALSE(failed.has("device lost"));
  frontend_.refuse(absl::ResourceExhaustedError("full"));
  const Answer full = ask(chat());
  EXPECT_EQ(full.status, 503);
  EXPECT_EQ(json::parse(full.body)["error"]["code"], "queue_full");
  EXPECT_FALSE(full.header("Retry-After").empty());
  frontend_.refuse(absl::OutOfRangeError("over the pool"));
  EXPECT_EQ(ask(chat(kStreamBody)).status, 400);  // before the head of the stream
}

TEST_F(HttpServer, BadJsonLeavesTheConnectionUsable) {
  start();
  Client client(server_->port());
  for (const std::string_view bad :
       {std::string_view("{"), std::string_view("[]"), std::string_view("\xff\xfe"),
        std::string_view("{\"messages\":[]}")}) {
    client.send(chat(bad));
    const Answer answer = client.answer();
    EXPECT_EQ(answer.status, 400) << bad;
    EXPECT_TRUE(json::parse(answer.body).contains("error"));
  }
  client.send(chat());
  frontend_.session().push("ok", FinishReason::kStop);
  EXPECT_EQ(client.answer().status, 200);
}

TEST_F(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  start();
  Client client(server_->port());
  client.send(get("/version") + chat() + get("/health") + chat());
  EXPECT_TRUE(client.answer().has("1.2.3"));
  frontend_.session(0).push("first", FinishReason::kStop);
  EXPECT_TRUE(client.answer().has("first"));
  EXPECT_TRUE(client.answer().has("ok"));
  frontend_.session(1).push("second", FinishReason::kStop);
  EXPECT_TRUE(client.answer().has("second"));
}

TEST_F(HttpServer, RequestSentWhileAnotherGeneratesIsKept) {
  start();
  Client client(server_->port());
  client.send(chat());
  const Session first = frontend_.session(0);
  client.send(chat().substr(0, 30));
  first.push("first", FinishReason::kStop);
  EXPECT_TRUE(client.answer().has("first"));
  client.send(chat().substr(30));
  frontend_.session(1).push("second", FinishReason::kStop);
  EXPECT_TRUE(client.answer().has("second"));
}

TEST_F(HttpServer, BytesMayComeOneByOne) {
  start();
  Client client(server_->port());
  for (const char byte : chat()) client.send(std::string_view(&byte, 1));
  frontend_.session().push("ok", FinishReason::kStop);
  EXPECT_EQ(client.answer().status, 200);
}

TEST_F(HttpServer, ChunkedUploadsAreRead) {
  start();
  Client client(server_->port());
  const std::string body(kChatBody);
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (std::size_t at = 0; at < body.size(); at += 7) {
    const std::string piece = body.substr(at, 7);
    client.send(std::to_string(piece.size()) + "\r\n" + piece + "\r\n");
  }
  client.send("0\r\n\r\n");
  frontend_.session().push("ok", FinishReason::kStop);
  EXPECT_EQ(client.answer().status, 200);
}

TEST_F(HttpServer, ContentLengthThatPromisesTooMuchEndsWithTheClient) {
  start();
  {
    Client client(server_->port());
    client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{}");
  }
  EXPECT_EQ(ask(get("/health")).status, 200);
  EXPECT_EQ(frontend_.submitted(), 0u);
}

TEST_F(HttpServer, ContentLengthThatPromisesTooLittleIsABadSecondRequest) {
  start();
  Client client(server_->port());
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}garbage" +
      std::string("\r\n\r\n"));
  EXPECT_EQ(client.answer().status, 400);
  const Answer second = client.answer();
  EXPECT_EQ(second.status, 400);
  EXPECT_EQ(second.header("Connection"), "close");
  EXPECT_TRUE(client.closed_by_server());
}

TEST_F(HttpServer, SlowBodyTimesOut) {
  options_.body_timeout = milliseconds(50);
  start();
  Client client(server_->port());
  client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{");
  const Answer answer = client.answer();
  EXPECT_EQ(answer.status, 408);
  EXPECT_EQ(answer.header("Connection"), "close");
}

TEST_F(HttpServer, IdleConnectionsAreClosed) {
  options_.idle_timeout = milliseconds(50);
  start();
  Client client(server_->port());
  client.send("GET /hea");
  EXPECT_TRUE(client.closed_by_server());
}

TEST_F(HttpServer, TooLargeBodiesAreRefused) {
  options_.max_body_bytes = 1000;
  start();
  const std::string large(1001, 'x');
  Answer answer = ask(chat(large));
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.header("Connection"), "close");
  EXPECT_EQ(json::parse(answer.body)["error"]["code"], "request_too_large");
  // Without a length it shows only on the way.
  answer =
      ask("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
          "3e9\r\n" +
          large + "\r\n0\r\n\r\n");
  EXPECT_EQ(answer.status, 413);
}

TEST_F(HttpServer, LargeHeadersAreRefused) {
  options_.max_header_bytes = 1000;
  start();
  const Answer answer = ask(get("/health", "X-Long: " + std::string(2000, 'x') + "\r\n"));
  EXPECT_EQ(answer.status, 431);
  EXPECT_TRUE(json::parse(answer.body).contains("error"));
}

TEST_F(HttpServer, GarbageIsABadRequest) {
  start();
  const Answer answer = ask("\x16\x03\x01 this is not HTTP\r\n\r\n");
  EXPECT_EQ(answer.status, 400);
  EXPECT_TRUE(json::parse(answer.body).contains("error"));
  EXPECT_EQ(ask(get("/health")).status, 200);
}

TEST_F(HttpServer, ContentTypeIsCheckedLeniently) {
  start();
  const auto with_type = [&](const std::string& header) {
    return ask("POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + header +
               "Content-Length: 2\r\n\r\n{}")
        .status;
  };
  EXPECT_EQ(with_type("Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(with_type("Content-Type: application/x-www-form-urlencoded\r\n"), 415);
  for (const char* good : {"", "Content-Type: application/json\r\n",
                           "Content-Type: Application/JSON ; charset=utf-8\r\n",
                           "Content-Type: application/vnd.x+json\r\n"}) {
    EXPECT_EQ(with_type(good), 400) << good;  // read, and found to lack a prompt
  }
}

TEST_F(HttpServer, ContinueIsSentWhenTheBodyIsWanted) {
  start();
  Client client(server_->port());
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
      "Content-Length: 2\r\n\r\n");
  EXPECT_EQ(client.take_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("{}");
  EXPECT_EQ(client.answer().status, 400);
  Client other(server_->port());
  other.send(
      "POST /nowhere HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
      "Content-Length: 2\r\n\r\n");
  EXPECT_EQ(other.answer().status, 404);
}

TEST_F(HttpServer, KeysGuardEverythingButProbes) {
  options_.api_keys = {"secret"};
  start();
  for (const char* target : {"/v1/models", "/metrics", "/nowhere"}) {
    const Answer answer = ask(get(target));
    EXPECT_EQ(answer.status, 401) << target;
    EXPECT_EQ(answer.header("WWW-Authenticate"), "Bearer");
    EXPECT_EQ(json::parse(answer.body)["error"]["code"], "invalid_api_key");
  }
  for (const char* target : {"/health", "/ready", "/ping", "/version"}) {
    EXPECT_EQ(ask(get(target)).status, 200) << target;
  }
  EXPECT_EQ(ask(chat()).status, 401);
  EXPECT_EQ(ask(chat(kChatBody, "Authorization: Bearer wrong\r\n")).status, 401);
  EXPECT_EQ(ask(get("/v1/models", "Authorization: Bearer secret\r\n")).status, 200);
  EXPECT_EQ(ask(get("/v1/models", "x-api-key: secret\r\n")).status, 200);
  EXPECT_EQ(frontend_.submitted(), 0u);
}

TEST_F(HttpServer, RequestIdIsMadeWhereTheClientsIsUnsafe) {
  start();
  const std::string id = ask(get("/health", "X-Request-Id: a b\r\n")).header("X-Request-Id");
  EXPECT_EQ(id.size(), 32u);
  EXPECT_NE(id, ask(get("/health")).header("X-Request-Id"));
}

TEST_F(HttpServer, TakenPortIsNamed) {
  start();
  ServerOptions same = options_;
  same.port = server_->port();
  ServerDependencies dependencies;
  dependencies.frontend = &frontend_;
  const auto second = Server::start(same, dependencies);
  ASSERT_FALSE(second.ok());
  const std::string message(second.status().message().data(), second.status().message().size());
  EXPECT_NE(message.find("127.0.0.1:" + std::to_string(same.port)), std::string::npos) << message;
  EXPECT_NE(message.find("--port"), std::string::npos);
  same.host = "no such host";
  EXPECT_EQ(Server::start(same, dependencies).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(HttpServer, PortIsFreeAgainAtOnce) {
  start();
  options_.port = server_->port();
  {
    Client client(server_->port());
    client.send(get("/health", "Connection: close\r\n"));
    client.answer();
    EXPECT_TRUE(client.closed_by_server());
  }
  server_.reset();
  start();
  EXPECT_EQ(ask(get("/health")).status, 200);
}

TEST_F(HttpServer, ConnectionsAreBounded) {
  options_.max_connections = 1;
  start();
  Client first(server_->port());
  first.send(get("/health"));
  EXPECT_EQ(first.answer().status, 200);
  Client second(server_->port());
  EXPECT_TRUE(second.closed_by_server());
  first.send(get("/health"));
  EXPECT_EQ(first.answer().status, 200);
}

}  // namespace
}  // namespace hisparse::http
