#include "config/option_groups.h"
#include "config/option_helpers.h"

namespace hisparse::config {
namespace {

constexpr std::int32_t kMaxQueued = 1 << 20;
constexpr std::int32_t kMaxTimeoutSeconds = 86400;
constexpr std::int64_t kMinBodyBytes = 1024;
constexpr std::int64_t kMaxBodyBytes = std::int64_t{1} << 30;

}  // namespace

void add_serve_options(CLI::App& command, ServeSettings& serve) {
  add_option(command, "max-num-seqs", serve.engine.max_num_seqs,
             "Requests that run at the same time")
      ->check(CLI::Range(1, kMaxSequences));
  add_option(command, "host", serve.host, "Address to listen on");
  add_option(command, "port", serve.port, "Port to listen on; 0: any free one");
  add_option(command, "http-threads", serve.http_threads,
             "Threads for connections and tokenisation")
      ->check(CLI::Range(1, kMaxThreads));
  add_option(command, "served-model-name", serve.served_model_name, "Name of the model in the API");
  add_option(command, "api-key", serve.api_key,
             "Keys that requests must carry (better in HISPARSE_API_KEY)");
  add_bytes(command, "max-body-bytes", serve.max_body_bytes, "Largest request body")
      ->check(CLI::Range(kMinBodyBytes, kMaxBodyBytes));
  add_option(command, "max-num-queued-reqs", serve.max_num_queued_reqs,
             "Requests that run or wait; one more gets 503")
      ->check(CLI::Range(1, kMaxQueued));
  add_option(command, "shutdown-timeout", serve.shutdown_timeout,
             "Seconds that open requests may take after SIGTERM")
      ->check(CLI::Range(0, kMaxTimeoutSeconds));
}

std::string find_conflict(const ServeSettings& serve) {
  for (const std::string& key : serve.api_key) {
    if (key.empty()) return "--api-key must not be empty";
  }
  return find_engine_conflict(serve.engine, "--max-num-seqs");
}

}  // namespace hisparse::config
