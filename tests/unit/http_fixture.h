// A server on loopback, an engine that does what the test says, and a client of plain sockets.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api_fakes.h"
#include "engine/frontend.h"
#include "gtest/gtest.h"
#include "http/server.h"

namespace hisparse::http {

using std::chrono::milliseconds;

// Only how long a failing test waits; passing ones never do.
inline constexpr milliseconds kPatience{20'000};

// A request that the engine was given.
struct Session {
  engine::Request request;
  std::shared_ptr<engine::OutputChannel> output;
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);

  bool push(std::string text, std::optional<engine::FinishReason> reason = std::nullopt) const {
    engine::OutputChunk chunk;
    chunk.text = std::move(text);
    chunk.usage = {3, 2, 1};
    if (reason) {
      chunk.finish.emplace();
      chunk.finish->reason = *reason;
      if (*reason == engine::FinishReason::kError) {
        chunk.finish->status = absl::InternalError("device lost");
      }
    }
    return output->push(std::move(chunk));
  }
};

class FakeFrontend final : public engine::Frontend {
 public:
  absl::StatusOr<engine::RequestHandle> submit(engine::Request request,
                                               std::function<void()> notify) override {
    std::lock_guard lock(mutex_);
    if (!submit_status_.ok()) return submit_status_;
    Session session;
    session.request = std::move(request);
    session.output = std::make_shared<engine::OutputChannel>(capacity_bytes);
    session.output->set_notify(std::move(notify));
    sessions_.push_back(session);
    changed_.notify_all();
    return engine::RequestHandle(session.output, [this, flag = session.cancelled] {
      std::lock_guard inner(mutex_);
      *flag = true;
      changed_.notify_all();
    });
  }
  std::shared_ptr<const engine::EngineStats> stats() const override { return nullptr; }
  engine::Lifecycle lifecycle() const override { return lifecycle_; }
  bool making_progress() const override { return progress_; }

  // The n-th request, waiting for it.
  Session session(std::size_t n = 0) {
    std::unique_lock lock(mutex_);
    const bool there = changed_.wait_for(lock, kPatience, [&] { return sessions_.size() > n; });
    EXPECT_TRUE(there) << "no request reached the engine";
    if (!there) std::abort();
    return sessions_[n];
  }
  bool wait_cancelled(const Session& session) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return session.cancelled->load(); });
  }
  std::size_t submitted() {
    std::lock_guard lock(mutex_);
    return sessions_.size();
  }
  void refuse(absl::Status status) {
    std::lock_guard lock(mutex_);
    submit_status_ = std::move(status);
  }
  void set(engine::Lifecycle lifecycle) { lifecycle_ = lifecycle; }
  void set_progress(bool progress) { progress_ = progress; }

  std::size_t capacity_bytes = 1 << 20;  // of each request's output

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Session> sessions_;
  absl::Status submit_status_;
  std::atomic<engine::Lifecycle> lifecycle_ = engine::Lifecycle::kReady;
  std::atomic<bool> progress_ = true;
};

struct Answer {
  int status = 0;
  std::string head;  // with the status line
  std::string body;

  bool has(std::string_view text) const { return body.find(text) != std::string::npos; }
  std::string header(std::string_view name) const {
    const std::size_t at = head.find("\r\n" + std::string(name) + ": ");
    if (at == std::string::npos) return {};
    const std::size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

class Client final {
 public:
  explicit Client(std::uint16_t port, int receive_buffer = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  // Reads on until what has been read and not taken holds `text`; true when it does.
  bool read_until(std::string_view text) {
    while (buffer_.find(text) == std::string::npos) {
      if (!read_some()) return false;
    }
    return true;
  }
  // Takes everything up to and including `text`.
  std::string take_until(std::string_view text) {
    if (!read_until(text)) return std::exchange(buffer_, {});
    return take(buffer_.find(text) + text.size());
  }
  std::string take(std::size_t bytes) {
    while (buffer_.size() < bytes && read_some()) {
    }
    std::string taken = buffer_.substr(0, bytes);
    buffer_.erase(0, taken.size());
    return taken;
  }
  // True when the server closes without another byte.
  bool closed_by_server() { return buffer_.empty() && !read_some() && !timed_out_; }

  // One whole answer; chunked bodies are put together.
  Answer answer() {
    Answer answer;
    answer.head = take_until("\r\n\r\n");
    if (answer.head.size() < 12) return answer;
    answer.status = std::atoi(answer.head.c_str() + 9);
    if (answer.header("Transfer-Encoding") == "chunked") {
      while (true) {
        const std::string size = take_until("\r\n");
        const std::size_t bytes = std::strtoul(size.c_str(), nullptr, 16);
        answer.body += take(bytes);
        take(2);
        if (bytes == 0) break;
      }
    } else if (!answer.header("Content-Length").empty()) {
      answer.body = take(std::strtoul(answer.header("Content-Length").c_str(), nullptr, 10));
    }
    return answer;
  }

  const std::string& unread() const { return buffer_; }

 private:
  bool read_some() {
    pollfd wait{socket_, POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(kPatience.count())) <= 0) {
      timed_out_ = true;
      return false;
    }
    char bytes[4096];
    const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    buffer_.append(bytes, static_cast<std::size_t>(got));
    return true;
  }

  int socket_;
  bool connected_ = false;
  bool timed_out_ = false;
  std::string buffer_;
};

inline std::string get(std::string_view target, std::string_view headers = {}) {
  return "GET " + std::string(target) + " HTTP/1.1\r\nHost: x\r\n" + std::string(headers) + "\r\n";
}

inline std::string post(std::string_view target, std::string_view body,
                        std::string_view headers = {}) {
  return "POST " + std::string(target) + " HTTP/1.1\r\nHost: x\r\n" + std::string(headers) +
         "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + std::string(body);
}

inline constexpr std::string_view kChatBody =
    R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":5})";
inline constexpr std::string_view kStreamBody =
    R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";

inline std::string chat(std::string_view body = kChatBody, std::string_view headers = {}) {
  return post("/v1/chat/completions", body, headers);
}

class ServerFixture : public testing::Test {
 protected:
  ServerFixture() {
    options_.port = 0;
    options_.version = "1.2.3";
  }

  void start() {
    ServerDependencies dependencies;
    dependencies.frontend = &frontend_;
    dependencies.model.name = "org/model";
    dependencies.model.tokenizer = &tokenizer_;
    dependencies.model.chat_template = &template_;
    dependencies.model.max_model_len = 1000;
    dependencies.metrics = [] { return std::string("hisparse_up 1\n"); };
    auto server = Server::start(options_, dependencies);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  Answer ask(std::string_view bytes) {
    Client client(server_->port());
    client.send(bytes);
    return client.answer();
  }

  std::int64_t counted(std::string_view route, int code) {
    std::int64_t sum = 0;
    for (const RequestCount& count : server_->request_counts()) {
      if (count.route == route && count.code == code) sum += count.count;
    }
    return sum;
  }

  // Answers are counted by the I/O thread; waits for one that no byte announces.
  bool wait_counted(std::string_view route, int code, std::int64_t count) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (counted(route, code) < count) {
      if (std::chrono::steady_clock::now() > end) return false;
      ::usleep(1000);
    }
    return true;
  }

  FakeFrontend frontend_;
  api::ByteTokenizer tokenizer_;
  api::PlainTemplate template_;
  ServerOptions options_;
  std::unique_ptr<Server> server_;
};

}  // namespace hisparse::http
