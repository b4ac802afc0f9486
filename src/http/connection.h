// One client connection. Only for the .cc files of http/ that do I/O.
#pragma once

#include <utility>  // before Asio, which forgets it

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "boost/asio/awaitable.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/thread_pool.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "http/reply.h"
#include "http/service.h"
#include "http/wake.h"

namespace hisparse::http {

// Reads requests one after the other and answers them, as one coroutine on the thread of one
// io_context, which also calls everything else here. While a request is being generated a read
// stays pending, so that the end of the client shows at once; what it reads belongs to the next
// request. Kept alive by its coroutine and its pending read.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;

  struct Context {
    boost::asio::io_context& io;
    Service& service;
    const ServerOptions& options;
    boost::asio::thread_pool& preparation;  // parsing, templates, tokenising: not on I/O threads
    std::atomic<int>& open_answers;         // generations under way, over all connections
  };

  Connection(boost::asio::ip::tcp::socket socket, const Context& context);

  // The whole life; the socket is closed at the end.
  boost::asio::awaitable<void> run();

  // Called at short intervals: times out what takes too long and calls for heartbeats.
  void tick(Clock::time_point now);
  // No further request; the open answer goes on.
  void finish_soon();
  // Ends the open answer with an error.
  void abort();
  // Ends everything without a word.
  void close();

 private:
  // One request and its answer.
  struct Exchange {
    std::string request_id;
    Method method = Method::kOther;
    Target target;
    KeepAlive keep_alive = KeepAlive::kNo;
    Framing framing = Framing::kChunked;
    std::string body;
  };
  struct Incoming;  // a request that is being read

  // Those with a bool answer whether the connection can go on.
  boost::asio::awaitable<bool> serve_one();
  boost::asio::awaitable<bool> serve(Incoming& incoming, Exchange& exchange);
  boost::asio::awaitable<bool> read_body(Incoming& incoming, Exchange& exchange);
  boost::asio::awaitable<bool> fail_read(Exchange& exchange, boost::system::error_code error);
  boost::asio::awaitable<bool> send_reply(const Exchange& exchange, const Reply& reply);
  boost::asio::awaitable<bool> write(std::string bytes);
  boost::asio::awaitable<void> linger();

  boost::asio::awaitable<bool> generate(Exchange& exchange, api::Endpoint endpoint);
  boost::asio::awaitable<api::Result<Generation>> prepare(const Exchange& exchange,
                                                          api::Endpoint endpoint,
                                                          std::function<void()> notify);
  boost::asio::awaitable<bool> deliver_whole(const Exchange& exchange, Generation generation);
  boost::asio::awaitable<bool> deliver_stream(const Exchange& exchange, Generation generation);
  std::string next_events(const api::StreamRenderer& renderer, engine::OutputChannel& output,
                          std::optional<int>& outcome);
  boost::asio::awaitable<void> stop_watching();
  void watch_peer();
  void on_peer(boost::system::error_code error, std::size_t bytes);
  void lose_peer();
  void count(const Exchange& exchange, int code);
  void set_deadline(std::chrono::milliseconds limit) { deadline_ = Clock::now() + limit; }
  void clear_deadline() { deadline_ = Clock::time_point::max(); }

  boost::asio::ip::tcp::socket socket_;
  const Context context_;
  boost::beast::flat_buffer buffer_;  // read and not yet parsed
  Signal signal_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point heartbeat_at_ = Clock::time_point::max();
  bool timed_out_ = false;
  bool reading_head_ = false;
  bool generating_ = false;
  bool watching_ = false;
  bool peer_gone_ = false;
  bool finishing_ = false;
  bool aborted_ = false;
  bool unread_body_ = false;  // the client may still be sending what nobody will read
};

}  // namespace hisparse::http
