#include "http/reply.h"

#include <cstdio>
#include <ctime>

namespace hisparse::http {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr int kUnauthorized = 401;

struct Phrase {
  int status;
  std::string_view words;
};

constexpr Phrase kPhrases[] = {
    {200, "OK"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {413, "Payload Too Large"},
    {415, "Unsupported Media Type"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {503, "Service Unavailable"},
};

std::string_view phrase_of(int status) {
  for (const Phrase& phrase : kPhrases) {
    if (phrase.status == status) return phrase.words;
  }
  return "Status";
}

void add_header(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ").append(value).append(kLineEnd);
}

// RFC 9110 section 5.6.7.
std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[sizeof "Sun, 06 Nov 1994 08:49:37 GMT"];
  std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return text;
}

std::string begin_head(int status, const ReplyFrame& frame, std::string_view content_type) {
  std::string out = "HTTP/1.1 " + std::to_string(status) + " ";
  out.append(phrase_of(status)).append(kLineEnd);
  add_header(out, "Date", date_now());
  add_header(out, "Content-Type", content_type);
  add_header(out, "X-Request-Id", frame.request_id);
  add_header(out, "Connection", frame.keep_alive == KeepAlive::kYes ? "keep-alive" : "close");
  return out;
}

}  // namespace

Reply error_reply(const api::ApiError& error) {
  Reply reply;
  reply.status = error.http_status;
  reply.body = api::render_error(error);
  if (error.retry_after_seconds) {
    reply.headers.push_back({"Retry-After", std::to_string(*error.retry_after_seconds)});
  }
  if (error.http_status == kUnauthorized) {
    reply.headers.push_back({"WWW-Authenticate", "Bearer"});
  }
  return reply;
}

std::string render_reply(const Reply& reply, const ReplyFrame& frame) {
  std::string out = begin_head(reply.status, frame, reply.content_type);
  for (const Header& header : reply.headers) add_header(out, header.name, header.value);
  add_header(out, "Content-Length", std::to_string(reply.body.size()));
  out.append(kLineEnd);
  if (frame.body == BodyBytes::kSend) out.append(reply.body);
  return out;
}

std::string render_stream_head(const ReplyFrame& frame, Framing framing) {
  constexpr int kOk = 200;
  std::string out = begin_head(kOk, frame, "text/event-stream; charset=utf-8");
  add_header(out, "Cache-Control", "no-cache");
  add_header(out, "X-Accel-Buffering", "no");
  if (framing == Framing::kChunked) add_header(out, "Transfer-Encoding", "chunked");
  return out.append(kLineEnd);
}

std::string render_piece(std::string_view bytes, Framing framing) {
  if (framing == Framing::kUntilClose) return std::string(bytes);
  char size[sizeof(std::size_t) * 2 + 1];
  std::snprintf(size, sizeof size, "%zx", bytes.size());
  std::string out = size;
  return out.append(kLineEnd).append(bytes).append(kLineEnd);
}

}  // namespace hisparse::http
