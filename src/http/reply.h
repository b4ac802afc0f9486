// Bytes of HTTP answers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"

namespace hisparse::http {

enum class KeepAlive : std::uint8_t { kNo, kYes };
enum class BodyBytes : std::uint8_t { kSend, kOmit };  // kOmit: HEAD
// How the end of a stream shows: HTTP/1.1 chunks, or the end of the connection (HTTP/1.0).
enum class Framing : std::uint8_t { kChunked, kUntilClose };

struct Header {
  std::string_view name;
  std::string value;
};

struct Reply {
  int status = 200;
  std::string body;
  std::string_view content_type = "application/json";
  std::vector<Header> headers;  // beyond those of every answer
};

// `error` as a reply, with Retry-After, WWW-Authenticate where they belong.
Reply error_reply(const api::ApiError& error);

struct ReplyFrame {
  std::string_view request_id;
  KeepAlive keep_alive = KeepAlive::kYes;
  BodyBytes body = BodyBytes::kSend;
};

// Head and body.
std::string render_reply(const Reply& reply, const ReplyFrame& frame);

// Head of a stream of server-sent events.
std::string render_stream_head(const ReplyFrame& frame, Framing framing);
// A piece of the stream's body; the empty piece of a chunked stream ends it.
std::string render_piece(std::string_view bytes, Framing framing);

}  // namespace hisparse::http
