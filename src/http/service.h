// What the server answers, without sockets.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "api/error.h"
#include "api/response.h"
#include "engine/frontend.h"
#include "http/credentials.h"
#include "http/http_counters.h"
#include "http/reply.h"
#include "http/route.h"
#include "http/server.h"

namespace hisparse::http {

// The parts of a request head that matter. Views into the parser.
struct RequestHead {
  Method method = Method::kOther;
  Target target;
  std::string_view authorization;
  std::string_view x_api_key;
  std::string_view content_type;
};

// A request that the engine has accepted.
struct Generation {
  engine::RequestHandle handle;
  api::ResponseHead head;
  api::Delivery delivery = api::Delivery::kWhole;
  api::StreamUsage stream_usage = api::StreamUsage::kOmit;
};

// Any thread: I/O threads call it at the same time.
class Service final {
 public:
  Service(const ServerOptions& options, ServerDependencies dependencies);

  std::string request_id(std::string_view header) const;

  // The answer to a request that must not be served, before its body is read.
  std::optional<Reply> refuse(const RequestHead& head) const;
  // The answer to a route that generates nothing.
  Reply answer(const RequestHead& head) const;
  // Parses, tokenises and submits. `notify` is called from the engine's output thread.
  api::Result<Generation> generate(api::Endpoint endpoint, std::string_view body,
                                   const std::string& request_id,
                                   std::function<void()> notify) const;

  void begin_draining() { draining_ = true; }
  bool draining() const { return draining_; }
  HttpCounters& counters() { return counters_; }
  const HttpCounters& counters() const { return counters_; }

 private:
  std::optional<api::ApiError> unavailable_now() const;
  Reply health() const;
  Reply readiness() const;
  Reply model(const std::string& id) const;
  Reply metrics() const;

  const ServerDependencies dependencies_;
  const ApiKeys keys_;
  const std::string version_;
  std::atomic<bool> draining_ = false;
  HttpCounters counters_;
};

}  // namespace hisparse::http
