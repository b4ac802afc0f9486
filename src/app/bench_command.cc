#include "app/bench_command.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/bench_kv.h"
#include "app/bench_report.h"
#include "app/bench_run.h"
#include "app/bench_statistics.h"
#include "app/bench_workload.h"
#include "app/loaded_model.h"
#include "app/machine_info.h"
#include "app/shutdown_signals.h"
#include "app/version.h"
#include "base/status.h"

namespace hisparse::app {
namespace {

constexpr const char* kStandardOutput = "-";
// Of the lines within one long run.
constexpr base::Nanoseconds kProgressInterval = 10'000'000'000;
constexpr int kSignalExitBase = 128;

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

BenchLimits limits_of(const engine::LaunchPlan& plan) {
  return {.max_model_len = plan.max_model_len,
          .page_tokens = plan.worker.page_tokens,
          .pages = static_cast<std::int32_t>(
              std::min<std::int64_t>(kv_cache_tokens(plan) / plan.worker.page_tokens,
                                     std::numeric_limits<std::int32_t>::max())),
          .page_bytes = plan.page_bytes};
}

// Nobody wants to learn after an hour that the file cannot be written. What it holds stays.
absl::Status probe_output(const std::string& path) {
  if (path.empty() || path == kStandardOutput) return absl::OkStatus();
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return absl::InvalidArgumentError("cannot write --output-json " + path);
  std::fclose(file);
  return absl::OkStatus();
}

absl::Status write_text(const std::string& path, const std::string& text) {
  std::FILE* file = path == kStandardOutput ? stdout : std::fopen(path.c_str(), "w");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                 std::fflush(file) == 0;
  if (file != nullptr && file != stdout) written = std::fclose(file) == 0 && written;
  if (written) return absl::OkStatus();
  return absl::InternalError("cannot write " +
                             (file == stdout ? std::string("standard output") : path));
}

// The table, and the JSON where it is asked for. An end before the first result leaves an older
// file as it was.
absl::Status write_report(const BenchReport& report) {
  if (report.results.empty()) return absl::OkStatus();
  const std::string& path = report.settings.output_json;
  if (path != kStandardOutput) {
    HS_RETURN_IF_ERROR(write_text(kStandardOutput, render_table(report)));
  }
  return path.empty() ? absl::OkStatus() : write_text(path, render_json(report));
}

BenchReport begin_report(const config::BenchSettings& settings, const LoadedModel& model,
                         const std::vector<BenchPoint>& points) {
  const engine::LaunchPlan& plan = model.launched.plan;
  BenchReport report;
  report.version = kVersion;
  report.started = utc_now();
  report.machine = read_machine_info();
  report.isa_level = model.launched.isa_level;
  report.model_file = std::filesystem::path(settings.engine.model).filename().string();
  report.model_digest = model.checkpoint->digest();
  report.architecture = plan.spec.architecture;
  report.parameters = plan.spec.parameters();
  report.dtype = name_of(plan.worker.model.compute);
  report.kv_cache_dtype = name_of(plan.worker.model.kv_dtype);
  report.threads = plan.threads;
  report.max_model_len = plan.max_model_len;
  report.kv_cache_tokens = kv_cache_tokens(plan);
  report.settings = settings;
  // As they are run: the default depends on the model.
  report.settings.input_lens.clear();
  for (const BenchPoint& point : points) {
    std::vector<std::int64_t>& lengths = report.settings.input_lens;
    if (lengths.empty() || lengths.back() != point.input_len) lengths.push_back(point.input_len);
  }
  return report;
}

std::string figures_line(const RunFigures& figures, const config::BenchSettings& settings) {
  char text[128];
  std::snprintf(text, sizeof(text), "prefill %.1f tokens/s, ", figures.prefill_tokens_per_s);
  const std::string line = (settings.inject_kv ? std::string() : std::string(text)) + "decode ";
  if (!figures.steady) return line + "without a steady state";
  std::snprintf(text, sizeof(text), "%.1f tokens/s", figures.steady->decode_tokens_per_s);
  return line + text;
}

// All points on a running engine. The results grow as they come, so that an early end leaves what
// there is.
class Bench final {
 public:
  // All must outlive it; the clock also outlives the engine.
  Bench(const LoadedModel& model, const base::Clock& clock, BenchReport& report)
      : model_(model), clock_(clock), report_(report) {}

  // Errors name the point, the iteration and the request. Cancelled: a signal is there.
  absl::Status run(const std::vector<BenchPoint>& points) {
    HS_ASSIGN_OR_RETURN(plain_,
                        plain_tokens(*model_.tokenizer, model_.launched.plan.spec.vocabulary));
    const std::size_t iterations = static_cast<std::size_t>(report_.settings.num_iters);
    const std::size_t runs = points.size() * iterations;
    std::size_t done = 0;
    spdlog::info("bench: warming up, {}", describe(points.front()));
    HS_RETURN_IF_ERROR(run_once(points.front(), "warm-up").status());
    for (const BenchPoint& point : points) {
      std::vector<RunFigures> figures;
      for (std::size_t i = 0; i < iterations; ++i) {
        absl::StatusOr<RunFigures> run = run_once(point, "iteration " + std::to_string(i + 1));
        if (!run.ok()) return run.status();
        figures.push_back(std::move(*run));
        keep(point, figures);
        spdlog::info("bench: {} of {}: {}: {}", ++done, runs, describe(point),
                     figures_line(figures.back(), report_.settings));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<RunFigures> run_once(const BenchPoint& point, const std::string& name) {
    Batch batch;
    batch.output_len = report_.settings.output_len;
    for (std::int32_t i = 0; i < point.batch_size; ++i) {
      batch.prompts.push_back(
          random_prompt(plain_, report_.settings.seed, next_prompt_++, point.input_len));
    }
    base::Nanoseconds told = clock_.now();
    const RunControl control = {
        .clock = clock_, .stop = ShutdownSignals::pending, .progress = [&](const RunTimes& times) {
          if (clock_.now() - told < kProgressInterval) return;
          told = clock_.now();
          log_progress(point, name, times);
        }};
    const absl::StatusOr<RunTimes> times = run_batch(*model_.launched.engine, batch, control);
    if (times.ok()) return measure(*times);
    return absl::Status(times.status().code(), describe(point) + ", " + name + ": " +
                                                   std::string(times.status().message()));
  }

  void log_progress(const BenchPoint& point, const std::string& name, const RunTimes& times) const {
    std::size_t begun = 0;
    std::size_t tokens = 0;
    for (const RequestTimes& request : times.requests) {
      if (!request.tokens.empty()) ++begun;
      tokens += request.tokens.size();
    }
    spdlog::info("bench: {}, {}: {} of {} prompts read, {} of {} tokens generated", describe(point),
                 name, begun, times.requests.size(), tokens,
                 static_cast<std::int64_t>(point.batch_size) * report_.settings.output_len);
  }

  // The point's figures over the iterations so far.
  void keep(const BenchPoint& point, const std::vector<RunFigures>& figures) {
    if (figures.size() == 1) report_.results.push_back({.point = point, .figures = {}});
    report_.results.back().figures = summarise(figures);
  }

  const LoadedModel& model_;
  const base::Clock& clock_;
  BenchReport& report_;
  std::vector<base::TokenId> plain_;
  std::uint32_t next_prompt_ = 0;  // no two prompts of the process are the same
};

void warn_where_decode_is_hidden(const std::vector<BenchPoint>& points,
                                 const config::BenchSettings& settings) {
  if (settings.output_len == 1) return;  // prefill alone is what is wanted
  for (const BenchPoint& point : points) {
    if (point.batch_size == 1 ||
        !lacks_steady_state(point, settings.output_len, settings.engine.max_num_batched_tokens)) {
      continue;
    }
    spdlog::warn(
        "{}: its first request will end before the last prompt is read, so that decoding alone "
        "cannot be measured: raise --output-len or --max-num-batched-tokens",
        describe(point));
  }
}

// A token that is only seen with its successor has no time of its own.
void warn_of_merged_tokens(const BenchReport& report) {
  constexpr std::int64_t kTolerated = 100;  // one in so many
  for (const BenchResult& result : report.results) {
    const RunFigures& figures = result.figures.median;
    if (figures.merged_tokens * kTolerated <= figures.output_tokens) continue;
    spdlog::warn("{}: {} of {} tokens were seen late: trust the rates, not the latencies",
                 describe(result.point), figures.merged_tokens, figures.output_tokens);
  }
}

absl::Status bench(const config::BenchSettings& settings) {
  HS_RETURN_IF_ERROR(probe_output(settings.output_json));
  const base::SteadyClock clock;  // outlives the engine, which notifies until its end
  std::vector<BenchPoint> points;
  LoadOptions load = {.max_live_requests = settings.engine.max_num_seqs,
                      .stop = ShutdownSignals::pending};
  load.check = [&](const engine::LaunchPlan& plan) {
    absl::StatusOr<std::vector<BenchPoint>> planned = plan_points(settings, limits_of(plan));
    if (planned.ok()) points = std::move(*planned);
    return planned.status();
  };
  load.token_bytes = show_token;
  BenchKv kv(settings.seed);
  if (settings.inject_kv) load.kv_source = &kv;
  HS_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, load_model(settings.engine, load));
  BenchReport report = begin_report(settings, *model, points);
  warn_where_decode_is_hidden(points, settings);
  const absl::Status status = Bench(*model, clock, report).run(points);
  if (!status.ok()) report.outcome = BenchOutcome::kInterrupted;
  warn_of_merged_tokens(report);
  const absl::Status written = write_report(report);
  return status.ok() ? written : status;
}

}  // namespace

int run_bench(const config::BenchSettings& settings) {
  ShutdownSignals signals;
  const absl::Status status = bench(settings);
  if (status.ok()) return 0;
  spdlog::error("{}", std::string(status.message()));
  if (status.code() != absl::StatusCode::kCancelled) return 1;
  constexpr timespec kAtOnce = {.tv_sec = 0, .tv_nsec = 0};
  return kSignalExitBase + std::max(signals.wait(kAtOnce), 0);
}

}  // namespace hisparse::app
