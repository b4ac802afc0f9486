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

// A chunk and when it arrived and was taken.
struct TimedChunk {
  engine::OutputChunk chunk;
  base::Nanoseconds arrived;
  base::Nanoseconds taken;
};

// Notes the tokens that are new in the chunk.
absl::Status note_tokens(const TimedChunk& timed, RequestTimes& request,
                         std::int64_t& merged_tokens) {
  const std::size_t known = request.tokens.size();
  const auto all = static_cast<std::size_t>(timed.chunk.usage.completion_tokens);
  if (known + timed.chunk.text.size() != all) {
    return absl::InternalError("a token was not shown, and its arrival is not known");
  }
  for (std::size_t i = known; i < all; ++i) {
    request.tokens.push_back(i == known ? timed.arrived : timed.taken);
    if (i > known) ++merged_tokens;
  }
  return absl::OkStatus();
}

// `noted`: of the request's last chunk. Why the engine gave up says more than what is missing then.
absl::Status check_end(const engine::Finish& finish, std::size_t tokens, std::int32_t output_len,
                       const absl::Status& noted) {
  if (finish.reason == engine::FinishReason::kError) return finish.status;
  if (!noted.ok()) return noted;
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

std::string show_token(base::TokenId) { return "."; }

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
      std::optional<engine::OutputChunk> chunk = handles[arrival.request].output().take();
      HS_CHECK(chunk.has_value());
      const TimedChunk timed = {
          .chunk = std::move(*chunk), .arrived = arrival.time, .taken = taken};
      absl::Status status = note_tokens(timed, request, times.merged_tokens);
      if (timed.chunk.finish) {
        --open;
        status = check_end(*timed.chunk.finish, request.tokens.size(), batch.output_len, status);
      }
      if (!status.ok()) return name_request(status, arrival.request, count);
    }
  }
  return times;
}

}  // namespace hisparse::app
