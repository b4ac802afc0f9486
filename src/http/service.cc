#include "http/service.h"

#include <ctime>
#include <random>
#include <utility>
#include <variant>

#include "nlohmann/json.hpp"

namespace hisparse::http {
namespace {

constexpr int kNotFound = 404;
constexpr int kMethodNotAllowed = 405;
constexpr int kUnsupportedMediaType = 415;
constexpr int kUnavailable = 503;
constexpr int kEntropyShift = 32;

std::uint64_t system_entropy() {
  std::random_device device;
  const std::uint64_t high = device();
  return (high << kEntropyShift) | device();
}

ServerDependencies with_entropy(ServerDependencies dependencies) {
  if (!dependencies.entropy) dependencies.entropy = system_entropy;
  return dependencies;
}

// Lenient: no header at all is JSON too.
bool is_json(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  constexpr std::string_view kSuffix = "+json";
  return type.empty() || equals_ignoring_case(type, "application/json") ||
         (type.size() > kSuffix.size() &&
          equals_ignoring_case(type.substr(type.size() - kSuffix.size()), kSuffix));
}

Reply status_reply(int code, std::string_view status) {
  Reply reply;
  reply.status = code;
  reply.body = nlohmann::json{{"status", status}}.dump();
  if (code == kUnavailable) reply.headers.push_back({"Retry-After", "1"});
  return reply;
}

Reply json_reply(std::string body) {
  Reply reply;
  reply.body = std::move(body);
  return reply;
}

Reply no_route() {
  return error_reply(api::request_error(kNotFound, "not_found", "There is no such route."));
}

}  // namespace

Service::Service(const ServerOptions& options, ServerDependencies dependencies)
    : dependencies_(with_entropy(std::move(dependencies))),
      keys_(options.api_keys),
      version_(options.version) {}

std::string Service::request_id(std::string_view header) const {
  return request_id_from(header, dependencies_.entropy);
}

std::optional<Reply> Service::refuse(const RequestHead& head) const {
  const Route route = head.target.route;
  if (!is_open(route) && !keys_.accept(head.authorization, head.x_api_key)) {
    return error_reply(api::invalid_api_key());
  }
  if (route == Route::kUnknown) return no_route();
  if (!allows(route, head.method)) {
    Reply reply = error_reply(api::request_error(kMethodNotAllowed, "method_not_allowed",
                                                 "This route does not take this method."));
    reply.headers.push_back({"Allow", std::string(allowed_methods(route))});
    return reply;
  }
  if (head.method != Method::kPost) return std::nullopt;
  if (!is_json(head.content_type)) {
    return error_reply(api::request_error(kUnsupportedMediaType, "unsupported_media_type",
                                          "The Content-Type must be application/json."));
  }
  if (const auto error = unavailable_now()) return error_reply(*error);
  return std::nullopt;
}

std::optional<api::ApiError> Service::unavailable_now() const {
  const engine::Lifecycle lifecycle = dependencies_.frontend->lifecycle();
  if (draining_ || lifecycle == engine::Lifecycle::kDraining) {
    return api::unavailable("draining", "The server is shutting down.");
  }
  if (lifecycle == engine::Lifecycle::kStarting) {
    return api::unavailable("loading", "The model is being loaded.");
  }
  if (lifecycle != engine::Lifecycle::kReady) {
    return api::unavailable("engine_stopped", "The engine has stopped.");
  }
  if (!dependencies_.frontend->making_progress()) {
    return api::unavailable("no_progress", "The engine makes no progress.");
  }
  return std::nullopt;
}

Reply Service::answer(const RequestHead& head) const {
  switch (head.target.route) {
    case Route::kModels:
      return json_reply(api::render_model_list(dependencies_.model));
    case Route::kModel:
      return model(head.target.model_id);
    case Route::kHealth:
    case Route::kPing:
      return health();
    case Route::kReady:
      return readiness();
    case Route::kMetrics:
      return metrics();
    case Route::kVersion:
      return json_reply(nlohmann::json{{"version", version_}}.dump());
    case Route::kChatCompletions:
    case Route::kCompletions:
    case Route::kUnknown:
      break;
  }
  return no_route();
}

Reply Service::model(const std::string& id) const {
  if (id != dependencies_.model.name) return error_reply(api::model_not_found(id));
  return json_reply(api::render_model(dependencies_.model));
}

Reply Service::health() const {
  constexpr int kOk = 200;
  const engine::Lifecycle lifecycle = dependencies_.frontend->lifecycle();
  if (lifecycle == engine::Lifecycle::kStarting) return status_reply(kOk, "loading");
  if (lifecycle == engine::Lifecycle::kFailed || lifecycle == engine::Lifecycle::kStopped) {
    return status_reply(kUnavailable, "failed");
  }
  if (!dependencies_.frontend->making_progress()) return status_reply(kUnavailable, "hung");
  return status_reply(kOk, "ok");
}

Reply Service::readiness() const {
  constexpr int kOk = 200;
  if (const auto error = unavailable_now()) return status_reply(kUnavailable, *error->code);
  return status_reply(kOk, "ready");
}

Reply Service::metrics() const {
  if (!dependencies_.metrics) return no_route();
  Reply reply = json_reply(dependencies_.metrics());
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return reply;
}

api::Result<Generation> Service::generate(api::Endpoint endpoint, std::string_view body,
                                          const std::string& request_id,
                                          std::function<void()> notify) const {
  auto parsed = api::parse_request_body(endpoint, body);
  if (auto* error = std::get_if<api::ApiError>(&parsed)) return std::move(*error);
  api::RequestBody& wanted = std::get<api::RequestBody>(parsed);
  Generation generation;
  generation.delivery = wanted.delivery;
  generation.stream_usage = wanted.stream_usage;
  auto prepared =
      api::prepare(std::move(wanted), dependencies_.model, {request_id, dependencies_.entropy});
  if (auto* error = std::get_if<api::ApiError>(&prepared)) return std::move(*error);
  auto handle = dependencies_.frontend->submit(std::move(std::get<engine::Request>(prepared)),
                                               std::move(notify));
  if (!handle.ok()) return api::from_submit_status(handle.status(), api::prompt_field(endpoint));
  generation.handle = *std::move(handle);
  generation.head = {endpoint, api::response_id(endpoint, request_id), std::time(nullptr),
                     dependencies_.model.name, dependencies_.model.system_fingerprint};
  return generation;
}

}  // namespace hisparse::http
