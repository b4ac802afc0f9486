#include "app/bench_run.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace hisparse::app {
namespace {

// "The channel of this request has something to take, since then."
struct Arrival {
  std::size_t request;
  base::Nanoseconds time;
};

// From the output thread to the thread that measures. Holds at most one arrival for each request,
// since a channel notifies again only after it was emptied.
class Arrivals final {
 public:
  explicit Arrivals(const base::Clock& clock) : clock_(clock) {}

  void post(std::size_t request) {
    const base::Nanoseconds now = clock_.now();
    {
      std::lock_guard lock(mutex_);
      arrivals_.push_back({.request = request, .time = now});
    }
    filled_.notify_one();
  }

  // All there is; waits up to `limit` for something.
  std::vector<Arrival> wait_take(std::chrono::nanoseconds limit) {
    std::unique_lock lock(mutex_);
    filled_.wait_for(lock, limit, [this] { return !arrivals_.empty(); });
    return std::exchange(arrivals_, {});
  }

 private:
  const base::Clock& clock_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::vector<Arrival> arrivals_;  // guarded by mutex_
};

absl::Status name_request(const absl::Status& status, std::size_t request, std::size_t requests) {
  return absl::Status(status.code(), "request " + std::to_string(request + 1) + " of " +
                                         std::to_string(requests) + ": " +
                                         std::string(status.message()));
}

engine::Request make_request(const Batch& batch, std::size_t index) {
  engine::Request request;
  request.id = "bench-" + std::to_string(index);
  request.prompt = batch.prompts[index];
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = batch.output_len;
  request.sampling.ignore_eos = true;
  return request;
}

// Notes the tokens that are new in the chunk, which arrived and was taken at these times.
void note_tokens(const engine::OutputChunk& chunk, base::Nanoseconds arrived,
                 base::Nanoseconds taken, RequestTimes& request, std::int64_t& merged_tokens) {
  const auto known = static_cast<std::int64_t>(request.tokens.size());
  for (std::int64_t i = known; i < chunk.usage.completion_tokens; ++i) {
    request.tokens.push_back(i == known ? arrived : taken);
    if (i > known) ++merged_tokens;
  }
}

absl::Status check_end(const engine::Finish& finish, std::size_t tokens, std::int32_t output_len) {
  if (finish.reason == engine::FinishReason::kError) return finish.status;
  if (finish.reason == engine::FinishReason::kLength &&
      tokens == static_cast<std::size_t>(output_len)) {
    return absl::OkStatus();
  }
  return absl::InternalError("ended by " + std::string(name_of(finish.reason)) + " after " +
                             std::to_string(tokens) + " of " + std::to_string(output_len) +
                             " tokens");
}

// Submits all requests and notes when.
absl::StatusOr<std::vector<engine::RequestHandle>> submit_all(
    engine::Frontend& frontend, const Batch& batch, const base::Clock& clock,
    const std::shared_ptr<Arrivals>& arrivals, RunTimes& times) {
  const std::size_t count = batch.prompts.size();
  std::vector<engine::Request> requests;
  for (std::size_t i = 0; i < count; ++i) requests.push_back(make_request(batch, i));
  std::vector<engine::RequestHandle> handles;
  for (std::size_t i = 0; i < count; ++i) {
    times.requests[i].submitted = clock.now();
    absl::StatusOr<engine::RequestHandle> handle =
        frontend.submit(std::move(requests[i]), [arrivals, i] { arrivals->post(i); });
    if (!handle.ok()) return name_request(handle.status(), i, count);
    handles.push_back(std::move(*handle));
  }
  return handles;
}

}  // namespace

absl::StatusOr<RunTimes> run_batch(engine::Frontend& frontend, const Batch& batch,
                                   const RunControl& control) {
  constexpr auto kPatience = std::chrono::milliseconds(100);
  const std::size_t count = batch.prompts.size();
  HS_CHECK(count > 0);
  RunTimes times;
  times.input_len = static_cast<std::int64_t>(batch.prompts.front().size());
  times.requests.resize(count);
  // Shared with the notifications, which may come late, after a cancelled run.
  const auto arrivals = std::make_shared<Arrivals>(control.clock);
  HS_ASSIGN_OR_RETURN(const std::vector<engine::RequestHandle> handles,
                      submit_all(frontend, batch, control.clock, arrivals, times));
  for (std::size_t open = count; open > 0; control.progress(times)) {
    if (control.stop()) return absl::CancelledError("told to stop");
    for (const Arrival& arrival : arrivals->wait_take(kPatience)) {
      RequestTimes& request = times.requests[arrival.request];
      // Read before the chunk is taken, so that it cannot lie behind the next arrival.
      const base::Nanoseconds taken = control.clock.now();
      const std::optional<engine::OutputChunk> chunk = handles[arrival.request].output().take();
      HS_CHECK(chunk.has_value());
      note_tokens(*chunk, arrival.time, taken, request, times.merged_tokens);
      if (!chunk->finish) continue;
      --open;
      const absl::Status end = check_end(*chunk->finish, request.tokens.size(), batch.output_len);
      if (!end.ok()) return name_request(end, arrival.request, count);
    }
  }
  return times;
}

}  // namespace hisparse::app
