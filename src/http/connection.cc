#include "http/connection.h"

#include <exception>
#include <string_view>

#include "boost/asio/buffer.hpp"
#include "boost/asio/redirect_error.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/asio/write.hpp"
#include "boost/beast/http.hpp"
#include "spdlog/spdlog.h"

namespace hisparse::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::chrono::milliseconds kLingerTime{2'000};
constexpr std::size_t kLingerBytes = std::size_t{64} << 20;
constexpr std::size_t kReadBytes = std::size_t{16} << 10;
constexpr unsigned kHttp11 = 11;
constexpr int kBadRequest = 400;
constexpr int kRequestTimeout = 408;
constexpr int kPayloadTooLarge = 413;
constexpr int kHeaderTooLarge = 431;

Method method_of(beast::http::verb verb) {
  switch (verb) {
    case beast::http::verb::get:
      return Method::kGet;
    case beast::http::verb::head:
      return Method::kHead;
    case beast::http::verb::post:
      return Method::kPost;
    default:
      return Method::kOther;
  }
}

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

Reply read_error_reply(error_code error) {
  if (error == beast::http::error::header_limit) {
    return error_reply(api::request_error(kHeaderTooLarge, "headers_too_large",
                                          "The header of the request is too large."));
  }
  if (error == beast::http::error::body_limit) {
    return error_reply(api::request_error(kPayloadTooLarge, "request_too_large",
                                          "The body of the request is too large."));
  }
  return error_reply(
      api::request_error(kBadRequest, "invalid_request", "The request is not valid HTTP."));
}

bool is_http_error(error_code error) {
  return error.category() ==
         beast::http::make_error_code(beast::http::error::bad_method).category();
}

}  // namespace

struct Connection::Incoming {
  explicit Incoming(const ServerOptions& options) {
    parser.header_limit(options.max_header_bytes);
    parser.body_limit(options.max_body_bytes);
  }

  std::string_view field(beast::http::field name) { return view(parser.get()[name]); }

  RequestHead head(const Exchange& exchange) {
    return {exchange.method, exchange.target, field(beast::http::field::authorization),
            view(parser.get()["X-Api-Key"]), field(beast::http::field::content_type)};
  }

  beast::http::request_parser<beast::http::string_body> parser;
};

Connection::Connection(asio::ip::tcp::socket socket, const Context& context)
    : socket_(std::move(socket)), context_(context) {}

asio::awaitable<void> Connection::run() {
  bool more = true;
  while (more && !finishing_) more = co_await serve_one();
  if (unread_body_) co_await linger();
  close();
}

asio::awaitable<bool> Connection::serve_one() {
  Incoming incoming(context_.options);
  Exchange exchange;
  error_code error;
  timed_out_ = false;
  reading_head_ = true;
  set_deadline(context_.options.idle_timeout);
  co_await beast::http::async_read_header(socket_, buffer_, incoming.parser,
                                          asio::redirect_error(asio::use_awaitable, error));
  reading_head_ = false;
  clear_deadline();
  if (error) {
    exchange.request_id = context_.service.request_id({});
    const bool more = co_await fail_read(exchange, error);
    co_return more;
  }
  const auto& request = incoming.parser.get();
  exchange.request_id = context_.service.request_id(view(request["X-Request-Id"]));
  exchange.method = method_of(request.method());
  exchange.target = parse_target(view(request.target()));
  const bool keep = request.keep_alive() && !context_.service.draining() && !finishing_;
  exchange.keep_alive = keep ? KeepAlive::kYes : KeepAlive::kNo;
  if (request.version() < kHttp11) {
    exchange.framing = Framing::kUntilClose;
  }
  const bool more = co_await serve(incoming, exchange);
  co_return more;
}

asio::awaitable<bool> Connection::serve(Incoming& incoming, Exchange& exchange) {
  // The body stays unread where the head alone says no: nobody without a key makes us hold 32 MiB.
  if (const auto refused = context_.service.refuse(incoming.head(exchange))) {
    unread_body_ = !incoming.parser.is_done();
    if (unread_body_) exchange.keep_alive = KeepAlive::kNo;
    const bool sent = co_await send_reply(exchange, *refused);
    co_return sent;
  }
  if (!incoming.parser.is_done()) {
    const bool complete = co_await read_body(incoming, exchange);
    if (!complete) co_return false;
  }
  const Route route = exchange.target.route;
  if (route == Route::kChatCompletions || route == Route::kCompletions) {
    exchange.body = std::move(incoming.parser.get().body());
    const bool more =
        co_await generate(exchange, route == Route::kChatCompletions ? api::Endpoint::kChat
                                                                     : api::Endpoint::kCompletion);
    co_return more;
  }
  Reply reply;
  try {
    reply = context_.service.answer(incoming.head(exchange));
  } catch (const std::exception& failure) {
    spdlog::error("request {}: {}", exchange.request_id, failure.what());
    reply = error_reply(api::internal_error());
  }
  const bool sent = co_await send_reply(exchange, reply);
  co_return sent;
}

asio::awaitable<bool> Connection::read_body(Incoming& incoming, Exchange& exchange) {
  set_deadline(context_.options.body_timeout);
  error_code error;
  if (equals_ignoring_case(incoming.field(beast::http::field::expect), "100-continue")) {
    co_await asio::async_write(socket_, asio::buffer(kContinue),
                               asio::redirect_error(asio::use_awaitable, error));
  }
  if (!error) {
    co_await beast::http::async_read(socket_, buffer_, incoming.parser,
                                     asio::redirect_error(asio::use_awaitable, error));
  }
  clear_deadline();
  if (!error) co_return true;
  co_await fail_read(exchange, error);
  co_return false;
}

asio::awaitable<bool> Connection::fail_read(Exchange& exchange, error_code error) {
  exchange.keep_alive = KeepAlive::kNo;
  const bool began = exchange.target.route != Route::kUnknown;  // the head was complete
  if (timed_out_ && began) {
    unread_body_ = true;
    const Reply reply = error_reply(api::request_error(kRequestTimeout, "request_timeout",
                                                       "The body of the request took too long."));
    co_await send_reply(exchange, reply);
  } else if (is_http_error(error) && error != beast::http::error::end_of_stream &&
             error != beast::http::error::partial_message) {
    unread_body_ = true;
    const Reply reply = read_error_reply(error);
    co_await send_reply(exchange, reply);
  }
  co_return false;
}

asio::awaitable<bool> Connection::send_reply(const Exchange& exchange, const Reply& reply) {
  count(exchange, reply.status);
  const BodyBytes body = exchange.method == Method::kHead ? BodyBytes::kOmit : BodyBytes::kSend;
  std::string bytes = render_reply(reply, {exchange.request_id, exchange.keep_alive, body});
  const bool sent = co_await write(std::move(bytes));
  co_return sent&& exchange.keep_alive == KeepAlive::kYes;
}

asio::awaitable<bool> Connection::write(std::string bytes) {
  set_deadline(context_.options.write_timeout);
  error_code error;
  co_await asio::async_write(socket_, asio::buffer(bytes),
                             asio::redirect_error(asio::use_awaitable, error));
  clear_deadline();
  co_return !error;
}

// A socket closed with unread input resets the connection, and the client may lose our answer.
asio::awaitable<void> Connection::linger() {
  error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  std::string sink(kReadBytes, '\0');
  std::size_t total = 0;
  timed_out_ = false;
  set_deadline(kLingerTime);
  while (!error && !timed_out_ && total < kLingerBytes) {
    total += co_await socket_.async_read_some(asio::buffer(sink),
                                              asio::redirect_error(asio::use_awaitable, error));
  }
  clear_deadline();
}

void Connection::tick(Clock::time_point now) {
  error_code ignored;
  if (now >= deadline_) {
    // Repeated at each tick: a cancel between two steps of one operation has no effect.
    timed_out_ = true;
    socket_.cancel(ignored);
  }
  if (finishing_ && reading_head_) socket_.cancel(ignored);
  if (now >= heartbeat_at_) signal_.fire();
}

void Connection::finish_soon() {
  finishing_ = true;
  error_code ignored;
  if (reading_head_) socket_.cancel(ignored);
}

void Connection::abort() {
  aborted_ = true;
  finish_soon();
  if (generating_) signal_.fire();
}

void Connection::close() {
  finishing_ = true;
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
  peer_gone_ = true;
  signal_.fire();
}

void Connection::count(const Exchange& exchange, int code) {
  context_.service.counters().add(exchange.target.route, exchange.method, code);
  spdlog::debug("request {}: {} {} -> {}", exchange.request_id, name_of(exchange.method),
                name_of(exchange.target.route), code);
}

}  // namespace hisparse::http
