#include "http/route.h"

#include <charconv>
#include <system_error>

namespace hisparse::http {
namespace {

struct Entry {
  std::string_view path;
  Route route;
};

constexpr Entry kRoutes[] = {
    {"/v1/chat/completions", Route::kChatCompletions},
    {"/v1/completions", Route::kCompletions},
    {"/v1/models", Route::kModels},
    {"/health", Route::kHealth},
    {"/ready", Route::kReady},
    {"/ping", Route::kPing},
    {"/metrics", Route::kMetrics},
    {"/version", Route::kVersion},
};

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr int kHexBase = 16;
constexpr std::size_t kHexDigits = 2;

// Malformed escapes stay as they are.
std::string percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const std::string_view digits = text.substr(i + 1, kHexDigits);
    if (text[i] == '%' && digits.size() == kHexDigits &&
        std::from_chars(digits.begin(), digits.end(), byte, kHexBase).ptr == digits.end()) {
      out.push_back(static_cast<char>(byte));
      i += kHexDigits;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

bool is_post(Route route) {
  return route == Route::kChatCompletions || route == Route::kCompletions;
}

}  // namespace

Target parse_target(std::string_view target) {
  const std::string_view path = target.substr(0, target.find('?'));
  for (const Entry& entry : kRoutes) {
    if (path == entry.path) return {entry.route, {}};
  }
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) {
    return {Route::kModel, percent_decode(path.substr(kModelPrefix.size()))};
  }
  return {};
}

std::string_view name_of(Route route) {
  for (const Entry& entry : kRoutes) {
    if (entry.route == route) return entry.path;
  }
  return route == Route::kModel ? "/v1/models/{id}" : "unknown";
}

std::string_view name_of(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kHead:
      return "HEAD";
    case Method::kPost:
      return "POST";
    case Method::kOther:
      return "other";
  }
  return "other";
}

std::string_view allowed_methods(Route route) { return is_post(route) ? "POST" : "GET, HEAD"; }

bool allows(Route route, Method method) {
  if (is_post(route)) return method == Method::kPost;
  return method == Method::kGet || method == Method::kHead;
}

bool is_open(Route route) {
  return route == Route::kHealth || route == Route::kReady || route == Route::kPing ||
         route == Route::kVersion;
}

}  // namespace hisparse::http
