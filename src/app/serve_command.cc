#include "app/serve_command.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "app/loaded_model.h"
#include "app/shutdown_signals.h"
#include "app/version.h"
#include "base/status.h"
#include "http/server.h"
#include "obs/metrics.h"

namespace hisparse::app {
namespace {

// How often the main thread looks whether the engine still lives.
constexpr timespec kWatchInterval = {.tv_sec = 0, .tv_nsec = 200'000'000};

// One connection is one descriptor; the soft limit is often 1024.
void raise_descriptor_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string served_name(const config::ServeSettings& settings) {
  if (!settings.served_model_name.empty()) return settings.served_model_name;
  return std::filesystem::path(settings.engine.model).stem().string();
}

std::string render_metrics(const engine::Engine& engine, const http::Server& server,
                           const std::string& model_name) {
  const std::shared_ptr<const engine::EngineStats> stats = engine.stats();
  obs::MetricsInput input;
  input.engine = stats.get();
  for (const http::RequestCount& count : server.request_counts()) {
    input.http.push_back({.route = std::string(count.route),
                          .method = std::string(count.method),
                          .code = count.code,
                          .count = count.count});
  }
  input.process = obs::read_process();
  input.model_name = model_name;
  input.version = kVersion;
  return obs::render_metrics(input);
}

http::ServerOptions server_options(const config::ServeSettings& settings) {
  http::ServerOptions options;
  options.host = settings.host;
  options.port = settings.port;
  options.io_threads = settings.http_threads;
  options.api_keys = settings.api_key;
  options.max_body_bytes = static_cast<std::size_t>(settings.max_body_bytes);
  options.version = kVersion;
  return options;
}

absl::StatusOr<std::unique_ptr<http::Server>> start_server(const config::ServeSettings& settings,
                                                           LoadedModel& model) {
  engine::Engine* engine = model.launched.engine.get();
  http::ServerDependencies dependencies;
  dependencies.frontend = engine;
  dependencies.model.name = served_name(settings);
  dependencies.model.tokenizer = model.tokenizer.get();
  dependencies.model.chat_template = model.chat_template.get();
  dependencies.model.max_model_len = model.launched.plan.max_model_len;
  dependencies.model.kv_cache_tokens = kv_cache_tokens(model.launched.plan);
  dependencies.model.created = std::time(nullptr);
  dependencies.model.system_fingerprint =
      std::string("hisparse-") + kVersion + "-" + model.checkpoint->digest().substr(0, 8);
  // /metrics names the server that serves it, which exists only after start(): requests before that
  // get 503.
  auto server = std::make_shared<std::atomic<const http::Server*>>(nullptr);
  dependencies.metrics = [engine, server, name = dependencies.model.name]() -> std::string {
    const http::Server* started = server->load();
    return started == nullptr ? std::string() : render_metrics(*engine, *started, name);
  };
  HS_ASSIGN_OR_RETURN(std::unique_ptr<http::Server> started,
                      http::Server::start(server_options(settings), std::move(dependencies)));
  *server = started.get();
  return started;
}

// Returns when a signal arrives (true) or the engine fails (false).
bool serve_until_told(ShutdownSignals& signals, const engine::Engine& engine) {
  for (;;) {
    if (signals.wait(kWatchInterval) > 0) return true;
    if (engine.lifecycle() == engine::Lifecycle::kFailed) return false;
  }
}

absl::Status serve(const config::ServeSettings& settings) {
  ShutdownSignals signals;
  raise_descriptor_limit();
  HS_RETURN_IF_ERROR(http::Server::probe(server_options(settings)));
  HS_ASSIGN_OR_RETURN(
      const std::unique_ptr<LoadedModel> model,
      load_model(settings.engine, {.max_live_requests = settings.max_num_queued_reqs,
                                   .stop = ShutdownSignals::pending}));
  HS_ASSIGN_OR_RETURN(const std::unique_ptr<http::Server> server, start_server(settings, *model));
  spdlog::info("serving {} on http://{}:{}", served_name(settings), http::bracketed(settings.host),
               server->port());
  const bool told = serve_until_told(signals, *model->launched.engine);
  signals.restore();
  if (!told) {
    server->drain(std::chrono::seconds(1));
    return absl::InternalError("the engine has failed; see the log");
  }
  spdlog::info("draining: open requests have {} s", settings.shutdown_timeout);
  server->drain(std::chrono::seconds(settings.shutdown_timeout));
  wait_until_kept(*model->launched.engine);
  spdlog::info("stopped");
  return absl::OkStatus();
}

}  // namespace

int run_serve(const config::ServeSettings& settings) {
  const absl::Status status = serve(settings);
  // Told to stop before the model was loaded: nothing was lost.
  if (status.ok() || status.code() == absl::StatusCode::kCancelled) return 0;
  spdlog::error("{}", std::string(status.message()));
  return 1;
}

}  // namespace hisparse::app
