// The part of a connection that waits for the engine.
#include <utility>  // before Asio, which forgets it

#include <exception>
#include <optional>
#include <variant>

#include "boost/asio/co_spawn.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "http/connection.h"
#include "spdlog/spdlog.h"

namespace hisparse::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr int kOk = 200;
constexpr std::size_t kWatchBytes = std::size_t{4} << 10;
// Read ahead of the open answer. A client that sends more than this before it gets its answer is
// cut off: not reading on would mean not to notice its end.
constexpr std::size_t kMaxPipelinedBytes = std::size_t{1} << 20;

api::ApiError shutting_down() {
  return api::unavailable("draining", "The server shut down before the answer was complete.");
}

// Cuts the engine's way to a connection whose request has ended.
class WakeGuard final {
 public:
  explicit WakeGuard(std::shared_ptr<EngineWake> wake) : wake_(std::move(wake)) {}
  ~WakeGuard() { wake_->detach(); }
  WakeGuard(const WakeGuard&) = delete;
  WakeGuard& operator=(const WakeGuard&) = delete;

 private:
  std::shared_ptr<EngineWake> wake_;
};

// Counts a generation while it lasts.
class OpenAnswer final {
 public:
  explicit OpenAnswer(std::atomic<int>& count) : count_(count) { ++count_; }
  ~OpenAnswer() { --count_; }
  OpenAnswer(const OpenAnswer&) = delete;
  OpenAnswer& operator=(const OpenAnswer&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace

// The work before the engine may take a while: it goes to the preparation threads, so that the
// other connections of this thread go on.
asio::awaitable<api::Result<Generation>> Connection::prepare(const Exchange& exchange,
                                                             api::Endpoint endpoint,
                                                             std::function<void()> notify) {
  using Prepared = std::optional<api::Result<Generation>>;
  const auto work = [&]() -> asio::awaitable<Prepared> {
    try {
      co_return context_.service.generate(endpoint, exchange.body, exchange.request_id,
                                          std::move(notify));
    } catch (const std::exception& failure) {
      spdlog::error("request {}: {}", exchange.request_id, failure.what());
    }
    co_return std::nullopt;
  };
  Prepared prepared =
      co_await asio::co_spawn(context_.preparation.get_executor(), work, asio::use_awaitable);
  if (!prepared) co_return api::internal_error();
  co_return *std::move(prepared);
}

asio::awaitable<bool> Connection::generate(Exchange& exchange, api::Endpoint endpoint) {
  const OpenAnswer open(context_.open_answers);
  const auto wake = std::make_shared<EngineWake>(context_.io, [this] { signal_.fire(); });
  const WakeGuard guard(wake);
  api::Result<Generation> started =
      co_await prepare(exchange, endpoint, [wake] { wake->notify(); });
  std::string().swap(exchange.body);  // not held while generating
  if (const auto* error = std::get_if<api::ApiError>(&started)) {
    const Reply reply = error_reply(*error);
    const bool sent = co_await send_reply(exchange, reply);
    co_return sent;
  }
  Generation generation = std::move(std::get<Generation>(started));
  generating_ = true;
  watch_peer();
  bool more = false;
  if (generation.delivery == api::Delivery::kStream) {
    more = co_await deliver_stream(exchange, std::move(generation));
  } else {
    more = co_await deliver_whole(exchange, std::move(generation));
  }
  heartbeat_at_ = Clock::time_point::max();
  co_await stop_watching();
  co_return more;
}

asio::awaitable<bool> Connection::deliver_whole(const Exchange& exchange, Generation generation) {
  engine::OutputChunk whole;
  while (!whole.finish && !aborted_) {
    co_await signal_.wait();
    if (peer_gone_) {
      count(exchange, kClientClosedRequest);
      co_return false;  // the handle's end cancels the request
    }
    if (auto chunk = generation.handle.output().take()) {
      whole.text += chunk->text;
      whole.usage = chunk->usage;
      whole.finish = std::move(chunk->finish);
    }
  }
  Reply reply;
  if (!whole.finish) {
    reply = error_reply(shutting_down());
  } else if (whole.finish->reason == engine::FinishReason::kStop ||
             whole.finish->reason == engine::FinishReason::kLength) {
    reply.body = api::render_response(generation.head, whole);
  } else {
    reply = error_reply(api::from_finish(*whole.finish));
  }
  const bool sent = co_await send_reply(exchange, reply);
  co_return sent;
}

asio::awaitable<bool> Connection::deliver_stream(const Exchange& exchange, Generation generation) {
  const api::StreamRenderer renderer(generation.head, generation.stream_usage);
  const KeepAlive keep_alive =
      exchange.framing == Framing::kChunked ? exchange.keep_alive : KeepAlive::kNo;
  std::string pending = render_stream_head({exchange.request_id, keep_alive}, exchange.framing);
  std::string events = renderer.begin();
  std::optional<int> outcome;  // the status to count, once the stream is complete
  while (true) {
    if (!events.empty()) pending += render_piece(events, exchange.framing);
    if (outcome) pending += render_piece({}, exchange.framing);
    if (!pending.empty()) {
      const bool sent = co_await write(std::exchange(pending, {}));
      if (!sent) peer_gone_ = true;
      heartbeat_at_ = Clock::now() + context_.options.heartbeat;
    }
    if (peer_gone_) {
      count(exchange, kClientClosedRequest);
      co_return false;  // the handle's end cancels the request
    }
    if (outcome) break;
    co_await signal_.wait();
    events = next_events(renderer, generation.handle.output(), outcome);
  }
  count(exchange, *outcome);
  co_return *outcome == kOk&& keep_alive == KeepAlive::kYes;
}

std::string Connection::next_events(const api::StreamRenderer& renderer,
                                    engine::OutputChannel& output, std::optional<int>& outcome) {
  std::string events;
  if (const auto chunk = output.take()) {
    events = renderer.render(*chunk);
    if (chunk->finish) {
      const auto reason = chunk->finish->reason;
      const bool success =
          reason == engine::FinishReason::kStop || reason == engine::FinishReason::kLength;
      outcome = success ? kOk : api::from_finish(*chunk->finish).http_status;
    }
  }
  if (!outcome && aborted_) {
    events += api::render_error_event(shutting_down());
    outcome = shutting_down().http_status;
  }
  if (events.empty() && Clock::now() >= heartbeat_at_) events = api::kHeartbeat;
  return events;
}

void Connection::watch_peer() {
  watching_ = true;
  socket_.async_read_some(buffer_.prepare(kWatchBytes),
                          [self = shared_from_this()](error_code error, std::size_t bytes) {
                            self->on_peer(error, bytes);
                          });
}

void Connection::on_peer(error_code error, std::size_t bytes) {
  watching_ = false;
  buffer_.commit(bytes);
  if (generating_ && !error && buffer_.size() < kMaxPipelinedBytes) return watch_peer();
  if (generating_) lose_peer();
  signal_.fire();
}

void Connection::lose_peer() {
  peer_gone_ = true;
  error_code ignored;
  socket_.cancel(ignored);  // a write that the peer no longer takes
}

asio::awaitable<void> Connection::stop_watching() {
  generating_ = false;
  error_code ignored;
  if (watching_) socket_.cancel(ignored);
  while (watching_) co_await signal_.wait();
}

}  // namespace hisparse::http
