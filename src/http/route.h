// Targets and methods of requests, as values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hisparse::http {

enum class Method : std::uint8_t { kGet, kHead, kPost, kOther };

enum class Route : std::uint8_t {
  kChatCompletions,
  kCompletions,
  kModels,
  kModel,
  kHealth,
  kReady,
  kPing,
  kMetrics,
  kVersion,
  kUnknown,
};

struct Target {
  Route route = Route::kUnknown;
  std::string model_id;  // kModel: the rest of the path, percent-decoded; may hold '/'
};

// Takes a request target ("/v1/models/a%2Fb?x=1"); the query is ignored.
Target parse_target(std::string_view target);

// For metrics: bounded, never a client's text. "/v1/models/{id}", "unknown".
std::string_view name_of(Route route);
std::string_view name_of(Method method);

// The value of the Allow header.
std::string_view allowed_methods(Route route);
bool allows(Route route, Method method);
// Routes that a probe must reach without an API key.
bool is_open(Route route);

}  // namespace hisparse::http
