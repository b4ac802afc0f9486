// The results of `hisparse bench` for people and for programs. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/bench_statistics.h"
#include "app/bench_workload.h"
#include "app/machine_info.h"
#include "config/server_config.h"

namespace hisparse::app {

struct BenchResult {
  BenchPoint point;
  PointFigures figures;
};

// kInterrupted: told to stop, or failed; the results are what was measured before.
enum class BenchOutcome : std::uint8_t { kComplete, kInterrupted };

// What was measured, on what, and how.
struct BenchReport {
  std::string version;
  std::string started;  // UTC, ISO 8601
  MachineInfo machine;
  std::string isa_level;
  std::string model_file;  // without its folder
  std::string model_digest;
  std::string architecture;
  std::int64_t parameters = 0;
  std::string dtype;  // how products are computed
  std::string kv_cache_dtype;
  std::int32_t threads = 0;
  std::int64_t max_model_len = 0;
  std::int64_t kv_cache_tokens = 0;
  config::BenchSettings settings;
  BenchOutcome outcome = BenchOutcome::kComplete;
  std::vector<BenchResult> results;
};

// A few lines of what was measured, and an aligned Markdown table. "-": there was no steady state,
// or prompts were not read.
std::string render_table(const BenchReport& report);

// One JSON object, indented. Times are milliseconds, rates tokens per second, token counts sums
// over the iterations; figures of the steady state are null where there was none, those of the
// prompts where KV rows were injected.
std::string render_json(const BenchReport& report);

}  // namespace hisparse::app
