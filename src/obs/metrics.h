// EngineStats and counters of the transports -> Prometheus text (reference/api.md sections 4.1 to
// 4.4). Reads snapshots only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine_stats.h"

namespace hisparse::obs {

// One series of hisparse_http_requests_total. The strings come from fixed sets, never from clients.
struct HttpRequestCount {
  std::string route;
  std::string method;
  int code = 0;
  std::int64_t count = 0;
};

// What the process says about itself; see read_process().
struct ProcessStats {
  double cpu_seconds = 0;
  double start_time_seconds = 0;  // Unix
  std::int64_t resident_bytes = 0;
  std::int64_t virtual_bytes = 0;
  std::int64_t open_fds = 0;
  std::int64_t max_fds = 0;
};

// From /proc/self; zeros where it cannot be read.
ProcessStats read_process();

struct MetricsInput {
  const engine::EngineStats* engine = nullptr;  // never null
  std::vector<HttpRequestCount> http;
  ProcessStats process;
  std::string model_name;  // the served name, chosen by the operator
  std::string version;
};

// Our own names pass `promtool check metrics`; the `vllm:` aliases after them, which the Kubernetes
// gateway extension and existing dashboards read, cannot (a colon is for recording rules).
std::string render_metrics(const MetricsInput& input);

}  // namespace hisparse::obs
