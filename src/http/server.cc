#include "http/server.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>

#include "boost/asio/co_spawn.hpp"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/redirect_error.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/thread_pool.hpp"
#include "http/connection.h"
#include "http/service.h"
#include "spdlog/spdlog.h"

namespace hisparse::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

// What the kernel may hold of an answer: a reader that stalls shows in our own, bounded buffer.
constexpr int kSendBufferBytes = 128 << 10;
constexpr milliseconds kAcceptPause{100};  // after an error such as too many open files
constexpr milliseconds kAbortGrace{1'000};
constexpr milliseconds kDrainPoll{20};
constexpr milliseconds kLongestSweep{500};
constexpr milliseconds kShortestSweep{5};
constexpr int kSweepsPerTimeout = 4;

// How often timeouts are looked at.
milliseconds sweep_interval(const ServerOptions& options) {
  const milliseconds shortest = std::min(
      {options.idle_timeout, options.body_timeout, options.write_timeout, options.heartbeat});
  return std::clamp(shortest / kSweepsPerTimeout, kShortestSweep, kLongestSweep);
}

std::string address_of(const ServerOptions& options) {
  return bracketed(options.host) + ":" + std::to_string(options.port);
}

absl::Status listen_error(const ServerOptions& options, error_code error) {
  const std::string address = address_of(options);
  if (error == asio::error::address_in_use) {
    return absl::FailedPreconditionError(
        address + " is in use by another program: stop it, or choose another port with --port");
  }
  if (error == asio::error::access_denied) {
    return absl::FailedPreconditionError("no permission to listen on " + address +
                                         ": choose a port above 1023 with --port");
  }
  return absl::FailedPreconditionError("cannot listen on " + address + ": " + error.message() +
                                       " (see --host and --port)");
}

absl::StatusOr<tcp::acceptor> listen(asio::io_context& io, const ServerOptions& options) {
  error_code error;
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return absl::InvalidArgumentError("host '" + options.host +
                                      "' is not an address of this machine (see --host)");
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return listen_error(options, error);
  return acceptor;
}

// One io_context with one thread; everything but `io` belongs to that thread.
struct IoWorker {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(io);
  asio::steady_timer sweep{io};
  bool stopping = false;
  std::unordered_set<std::shared_ptr<Connection>> connections;
  std::thread thread;
};

}  // namespace

std::string bracketed(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

struct Server::Impl {
  Impl(ServerOptions server_options, ServerDependencies dependencies)
      : options(std::move(server_options)),
        service(options, std::move(dependencies)),
        preparation(static_cast<std::size_t>(std::max(options.io_threads, 1))) {}

  absl::Status start();
  asio::awaitable<void> accept_all();
  void admit(IoWorker& worker, tcp::socket socket);
  void begin(IoWorker& worker, tcp::socket socket);
  void set_socket_options(tcp::socket& socket) const;
  void sweep_later(IoWorker& worker);
  void for_each_connection(void (Connection::*action)());
  bool wait_until_closed(milliseconds limit);
  void stop_threads();

  const ServerOptions options;
  Service service;
  asio::thread_pool preparation;
  std::atomic<int> open_answers = 0;
  std::vector<std::unique_ptr<IoWorker>> workers;
  std::unique_ptr<tcp::acceptor> acceptor;  // the first worker's thread, once started
  std::uint16_t port = 0;
  std::atomic<bool> drained = false;
  std::atomic<bool> closing = false;  // no connection outlives its present answer
  std::mutex mutex;
  std::condition_variable closed;
  int open_connections = 0;  // guarded by mutex
};

absl::Status Server::Impl::start() {
  const int threads = std::max(options.io_threads, 1);
  for (int i = 0; i < threads; ++i) workers.push_back(std::make_unique<IoWorker>());
  auto listening = listen(workers.front()->io, options);
  if (!listening.ok()) return listening.status();
  acceptor = std::make_unique<tcp::acceptor>(*std::move(listening));
  port = acceptor->local_endpoint().port();
  asio::co_spawn(workers.front()->io, accept_all(), [](std::exception_ptr) {});
  for (const auto& worker : workers) {
    sweep_later(*worker);
    worker->thread = std::thread([&io = worker->io] { io.run(); });
  }
  return absl::OkStatus();
}

asio::awaitable<void> Server::Impl::accept_all() {
  asio::steady_timer pause(workers.front()->io);
  for (std::size_t turn = 0; acceptor->is_open(); ++turn) {
    IoWorker& worker = *workers[turn % workers.size()];
    error_code error;
    tcp::socket socket = co_await acceptor->async_accept(
        worker.io, asio::redirect_error(asio::use_awaitable, error));
    if (error == asio::error::operation_aborted) break;
    if (error) {
      spdlog::warn("cannot accept a connection: {}", error.message());
      pause.expires_after(kAcceptPause);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    admit(worker, std::move(socket));
  }
}

void Server::Impl::admit(IoWorker& worker, tcp::socket socket) {
  {
    std::lock_guard lock(mutex);
    if (open_connections >= options.max_connections) return;  // closes the socket
    ++open_connections;
  }
  asio::post(worker.io, [this, &worker, socket = std::move(socket)]() mutable {
    begin(worker, std::move(socket));
  });
}

void Server::Impl::begin(IoWorker& worker, tcp::socket socket) {
  set_socket_options(socket);
  const auto connection = std::make_shared<Connection>(
      std::move(socket),
      Connection::Context{worker.io, service, options, preparation, open_answers});
  worker.connections.insert(connection);
  if (closing) connection->finish_soon();
  asio::co_spawn(worker.io, connection->run(),
                 [this, &worker, connection](std::exception_ptr failure) {
                   if (failure) spdlog::error("a connection ended by an exception");
                   connection->close();
                   worker.connections.erase(connection);
                   std::lock_guard lock(mutex);
                   --open_connections;
                   closed.notify_all();
                 });
}

void Server::Impl::set_socket_options(tcp::socket& socket) const {
  error_code ignored;  // a socket that has died shows at its first read
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  socket.set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), ignored);
  // A peer that vanished without a word: heartbeats go unacknowledged.
  const auto user_timeout = static_cast<unsigned>(options.write_timeout.count());  // milliseconds
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout,
               sizeof user_timeout);
}

// One timer for all connections of a thread.
void Server::Impl::sweep_later(IoWorker& worker) {
  worker.sweep.expires_after(sweep_interval(options));
  worker.sweep.async_wait([this, &worker](error_code error) {
    if (error || worker.stopping) return;
    const auto now = Connection::Clock::now();
    for (const auto& connection : worker.connections) connection->tick(now);
    sweep_later(worker);
  });
}

void Server::Impl::for_each_connection(void (Connection::*action)()) {
  for (const auto& worker : workers) {
    asio::post(worker->io, [&connections = worker->connections, action] {
      for (const auto& connection : connections) (connection.get()->*action)();
    });
  }
}

bool Server::Impl::wait_until_closed(milliseconds limit) {
  std::unique_lock lock(mutex);
  return closed.wait_for(lock, limit, [this] { return open_connections == 0; });
}

void Server::Impl::stop_threads() {
  for (const auto& worker : workers) {
    asio::post(worker->io, [&worker = *worker] {
      worker.stopping = true;
      worker.sweep.cancel();
      worker.work.reset();
    });
  }
  for (const auto& worker : workers) worker->thread.join();
  preparation.join();
}

absl::Status Server::probe(const ServerOptions& options) {
  asio::io_context io;
  return listen(io, options).status();
}

absl::StatusOr<std::unique_ptr<Server>> Server::start(ServerOptions options,
                                                      ServerDependencies dependencies) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(dependencies));
  if (const absl::Status status = impl->start(); !status.ok()) return status;
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { drain(milliseconds(0)); }

std::uint16_t Server::port() const { return impl_->port; }

void Server::begin_draining() { impl_->service.begin_draining(); }

void Server::drain(milliseconds limit) {
  begin_draining();
  if (impl_->drained.exchange(true)) return;
  // The listener stays: /ready, /metrics and refusals of new work are answered while open answers
  // finish.
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (impl_->open_answers > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kDrainPoll);
  }
  impl_->closing = true;
  const milliseconds grace = impl_->open_answers > 0 ? milliseconds(0) : kAbortGrace;
  asio::post(impl_->workers.front()->io, [this] {
    error_code ignored;
    impl_->acceptor->close(ignored);
  });
  impl_->for_each_connection(&Connection::finish_soon);
  if (!impl_->wait_until_closed(grace)) {
    impl_->for_each_connection(&Connection::abort);
    if (!impl_->wait_until_closed(kAbortGrace)) impl_->for_each_connection(&Connection::close);
  }
  impl_->stop_threads();
}

std::vector<RequestCount> Server::request_counts() const {
  return impl_->service.counters().snapshot();
}

}  // namespace hisparse::http
