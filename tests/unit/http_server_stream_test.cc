// Streams, clients that leave or stall, and the end of the server.
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "http/server.h"
#include "http_fixture.h"
#include "nlohmann/json.hpp"

namespace hisparse::http {
namespace {

using engine::FinishReason;
using nlohmann::json;

class HttpStream : public ServerFixture {};

TEST_F(HttpStream, TextArrivesAsItIsMade) {
  start();
  Client client(server_->port());
  client.send(chat(kStreamBody));
  const Session session = frontend_.session();
  ASSERT_TRUE(client.read_until(R"("role":"assistant")"));
  session.push("one");
  ASSERT_TRUE(client.read_until(R"("content":"one")"));
  session.push("two");
  ASSERT_TRUE(client.read_until(R"("content":"two")"));
  session.push("", FinishReason::kStop);
  const Answer answer = client.answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("Content-Type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(answer.header("Cache-Control"), "no-cache");
  EXPECT_EQ(answer.header("X-Accel-Buffering"), "no");
  EXPECT_TRUE(answer.header("Content-Length").empty());
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
  client.send(get("/version"));  // the connection goes on
  EXPECT_TRUE(client.answer().has("1.2.3"));
  EXPECT_EQ(counted("/v1/chat/completions", 200), 1);
}

TEST_F(HttpStream, CompletionsStreamHasNoRole) {
  start();
  Client client(server_->port());
  client.send(post("/v1/completions", R"({"prompt":"a","stream":true})"));
  frontend_.session().push("b", FinishReason::kLength);
  const Answer answer = client.answer();
  EXPECT_FALSE(answer.has("role"));
  EXPECT_TRUE(answer.has(R"("text":"b")"));
  EXPECT_TRUE(answer.has(R"("finish_reason":"length")"));
}

TEST_F(HttpStream, OldClientsGetAStreamThatEndsWithTheConnection) {
  start();
  Client client(server_->port());
  client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " +
              std::to_string(kStreamBody.size()) + "\r\n\r\n" + std::string(kStreamBody));
  frontend_.session().push("b", FinishReason::kStop);
  const std::string all = client.take_until("data: [DONE]\n\n");
  EXPECT_EQ(all.find("chunked"), std::string::npos);
  EXPECT_NE(all.find("\r\n\r\ndata: "), std::string::npos);
  EXPECT_TRUE(client.closed_by_server());
}

TEST_F(HttpStream, FailureIsAnEventAndTheEndOfTheConnection) {
  start();
  Client client(server_->port());
  client.send(chat(kStreamBody));
  const Session session = frontend_.session();
  session.push("part");
  ASSERT_TRUE(client.read_until("part"));
  session.push("", FinishReason::kError);
  const Answer answer = client.answer();
  EXPECT_TRUE(answer.has("data: {\"error\":{"));
  EXPECT_FALSE(answer.has("[DONE]"));
  EXPECT_FALSE(answer.has("device lost"));
  EXPECT_TRUE(client.closed_by_server());
}

TEST_F(HttpStream, SilenceIsFilledWithComments) {
  options_.heartbeat = milliseconds(20);
  start();
  Client client(server_->port());
  client.send(chat(kStreamBody));
  const Session session = frontend_.session();
  client.take_until(": ping\n\n");
  client.take_until(": ping\n\n");
  session.push("x", FinishReason::kStop);
  EXPECT_TRUE(client.read_until("[DONE]"));
}

TEST_F(HttpStream, ClientThatLeavesAStreamCancels) {
  options_.heartbeat = kPatience * 100;  // or a failing heartbeat would show it too
  start();
  auto client = std::make_unique<Client>(server_->port());
  client->send(chat(kStreamBody));
  const Session session = frontend_.session();
  session.push("x");
  ASSERT_TRUE(client->read_until("x"));
  client.reset();
  EXPECT_TRUE(frontend_.wait_cancelled(session));
  EXPECT_TRUE(wait_counted("/v1/chat/completions", kClientClosedRequest, 1));
}

TEST_F(HttpStream, ClientThatLeavesBeforeAWholeAnswerCancels) {
  start();
  auto client = std::make_unique<Client>(server_->port());
  client->send(chat());
  const Session session = frontend_.session();
  EXPECT_FALSE(session.cancelled->load());
  client.reset();
  EXPECT_TRUE(frontend_.wait_cancelled(session));
  EXPECT_TRUE(wait_counted("/v1/chat/completions", kClientClosedRequest, 1));
  session.push("too late", FinishReason::kStop);  // the engine may still hold the way back
  EXPECT_EQ(ask(get("/health")).status, 200);
}

TEST_F(HttpStream, ClientThatFloodsBehindAnOpenAnswerIsCutOff) {
  start();
  Client client(server_->port());
  client.send(chat());
  const Session session = frontend_.session();
  client.send(std::string(std::size_t{2} << 20, 'x'));
  EXPECT_TRUE(frontend_.wait_cancelled(session));
}

TEST_F(HttpStream, ReaderThatStallsIsBoundedAndCancelled) {
  options_.write_timeout = milliseconds(200);
  frontend_.capacity_bytes = 64 << 10;
  start();
  Client client(server_->port(), 4096);
  client.send(chat(kStreamBody));
  const Session session = frontend_.session();
  const std::string text(16 << 10, 'x');
  std::size_t accepted = 0;
  while (!session.cancelled->load() && session.push(text)) accepted += text.size();
  // What the sockets and the channel hold, and not what an engine could make.
  EXPECT_LT(accepted, std::size_t{16} << 20);
  EXPECT_TRUE(frontend_.wait_cancelled(session));
  EXPECT_EQ(ask(get("/health")).status, 200);
}

TEST_F(HttpStream, ManyStreamsGetTheirOwnTextWhole) {
  options_.io_threads = 2;
  start();
  constexpr std::size_t kStreams = 40;
  constexpr int kPieces = 50;
  std::vector<std::unique_ptr<Client>> clients;
  for (std::size_t i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->send(chat(kStreamBody, "X-Request-Id: " + std::to_string(i) + "\r\n"));
  }
  std::vector<Session> sessions;
  for (std::size_t i = 0; i < kStreams; ++i) sessions.push_back(frontend_.session(i));
  std::thread engine([&] {
    for (int piece = 0; piece < kPieces; ++piece) {
      for (const Session& session : sessions) session.push(session.request.id + ",");
    }
    for (const Session& session : sessions) session.push("", FinishReason::kStop);
  });
  for (std::size_t i = 0; i < kStreams; ++i) {
    const Answer answer = clients[i]->answer();
    std::string text;
    for (std::size_t at = 0; (at = answer.body.find("data: {", at)) != std::string::npos; ++at) {
      const std::size_t end = answer.body.find('\n', at);
      const json event = json::parse(answer.body.substr(at + 6, end - at - 6));
      text += event["choices"][0]["delta"].value("content", "");
    }
    std::string expected;
    for (int piece = 0; piece < kPieces; ++piece) expected += std::to_string(i) + ",";
    EXPECT_EQ(text, expected);
  }
  engine.join();
}

TEST_F(HttpStream, DrainingRefusesNewWorkAndLetsOpenAnswersFinish) {
  start();
  Client open(server_->port());
  open.send(chat(kStreamBody));
  const Session session = frontend_.session();
  ASSERT_TRUE(open.read_until("assistant"));
  server_->begin_draining();
  EXPECT_EQ(ask(get("/ready")).status, 503);
  EXPECT_EQ(ask(get("/health")).status, 200);
  const Answer refused = ask(chat());
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(json::parse(refused.body)["error"]["code"], "draining");
  EXPECT_FALSE(refused.header("Retry-After").empty());
  EXPECT_EQ(refused.header("Connection"), "close");
  auto drained = std::async(std::launch::async, [&] { server_->drain(kPatience); });
  session.push("end", FinishReason::kStop);
  EXPECT_TRUE(open.answer().body.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(open.closed_by_server());
  ASSERT_EQ(drained.wait_for(kPatience), std::future_status::ready);
  EXPECT_FALSE(Client(server_->port()).connected());
}

TEST_F(HttpStream, DrainEndsIdleConnectionsAtOnce) {
  start();
  Client idle(server_->port());
  idle.send(get("/health"));
  EXPECT_EQ(idle.answer().status, 200);
  server_->drain(kPatience);
  EXPECT_TRUE(idle.closed_by_server());
}

TEST_F(HttpStream, DeadlineOfADrainEndsOpenAnswersWithAnError) {
  start();
  Client stream(server_->port());
  stream.send(chat(kStreamBody));
  Client whole(server_->port());
  const Session first = frontend_.session(0);
  whole.send(chat());
  const Session second = frontend_.session(1);
  ASSERT_TRUE(stream.read_until("assistant"));
  server_->drain(milliseconds(0));
  EXPECT_TRUE(stream.answer().has(R"("code":"draining")"));
  EXPECT_TRUE(stream.closed_by_server());
  EXPECT_EQ(whole.answer().status, 503);
  EXPECT_TRUE(first.cancelled->load());
  EXPECT_TRUE(second.cancelled->load());
}

TEST_F(HttpStream, EngineMayNotifyAfterTheServerHasGone) {
  start();
  Client client(server_->port());
  client.send(chat(kStreamBody));
  const Session session = frontend_.session();
  server_.reset();
  EXPECT_TRUE(session.cancelled->load());
  session.push("late");
  session.push("", FinishReason::kAbort);
}

}  // namespace
}  // namespace hisparse::http
