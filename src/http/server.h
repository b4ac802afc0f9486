// The HTTP transport of the OpenAI-compatible API.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "api/prepare.h"
#include "engine/frontend.h"
#include "http/http_counters.h"

namespace hisparse::http {

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  // 0: any free one, see Server::port()
  int io_threads = 2;
  int max_connections = 4096;         // further ones are closed at once
  std::vector<std::string> api_keys;  // none: open to everybody
  std::size_t max_body_bytes = std::size_t{32} << 20;
  std::uint32_t max_header_bytes = std::uint32_t{64} << 10;
  std::chrono::milliseconds idle_timeout{75'000};  // for the next request's header to be complete
  std::chrono::milliseconds body_timeout{120'000};
  std::chrono::milliseconds write_timeout{30'000};  // for a client to take one write
  std::chrono::milliseconds heartbeat{15'000};      // silence of a stream before a comment goes out
  std::string version;
};

struct ServerDependencies {
  engine::Frontend* frontend = nullptr;    // outlives the server
  api::ServedModel model;                  // its pointees outlive the server
  std::function<std::string()> metrics;    // body of /metrics, any thread; empty: 404
  std::function<std::uint64_t()> entropy;  // any thread; empty: the system's
};

// A host as it stands in a URL: IPv6 addresses in brackets.
std::string bracketed(const std::string& host);

// Owns its I/O threads, listener and connections. A client that goes away cancels its request,
// streaming or not; a half-close counts as going away. Created, drained and destroyed by one
// thread; the rest may be called from any.
class Server final {
 public:
  // Listens and serves at once. Errors: InvalidArgument (host), FailedPrecondition (the address is
  // taken or not permitted; the message names it and says what to do).
  static absl::StatusOr<std::unique_ptr<Server>> start(ServerOptions options,
                                                       ServerDependencies dependencies);
  // Whether start() could listen now, with its errors: to know before a long load.
  static absl::Status probe(const ServerOptions& options);
  // As drain(0).
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;

  // /ready turns 503 and new generation requests are refused; everything else goes on.
  void begin_draining();
  // Also lets open answers finish for up to `limit`, ends the rest with an error (an event within a
  // stream), stops listening, and returns when all threads have ended.
  void drain(std::chrono::milliseconds limit);

  std::vector<RequestCount> request_counts() const;

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hisparse::http
