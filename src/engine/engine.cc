#include "engine/engine.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "base/check.h"

namespace hisparse::engine {
namespace {

// A live request can have one submit, some cancels and one stop under way; beyond them there is a
// step result and a few orders of the main thread. With this bound the inbox never overflows, so
// the output thread never waits for the engine thread while the engine thread waits for it.
constexpr std::size_t kMessagesPerRequest = 4;
constexpr std::size_t kOtherMessages = 16;
constexpr std::size_t kOutputQueue = 256;

}  // namespace

Engine::Engine(const EngineConfig& config, std::unique_ptr<WorkerGroup> workers,
               TokenBytes token_bytes)
    : config_(config),
      inbox_(static_cast<std::size_t>(config.max_live_requests) * kMessagesPerRequest +
             kOtherMessages),
      workers_(std::move(workers)),
      core_(config.core, clock_, mover_) {
  last_progress_ = clock_.now();
  workers_->set_done([this](StepResult result) { post(std::move(result)); });
  output_ = std::make_unique<OutputStage>(
      std::move(token_bytes),
      OutputRequests{.stop = [this](base::SequenceId id) { post(Stop{id}); },
                     .cancel = [this](base::SequenceId id) { post(Cancel{id}); }},
      kOutputQueue);
  publish();
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  Lifecycle expected = Lifecycle::kReady;
  lifecycle_.compare_exchange_strong(expected, Lifecycle::kDraining);
  post(EndAll{absl::UnavailableError("the server stops")});
  inbox_.close();
  thread_.join();
  output_.reset();
  workers_.reset();
  lifecycle_ = Lifecycle::kStopped;
}

void Engine::post(Message message) {
  // Refused only after close(): the engine thread has ended everything by then.
  if (!inbox_.try_push(std::move(message))) HS_CHECK(inbox_.closed());
}

absl::StatusOr<RequestHandle> Engine::submit(Request request, std::function<void()> notify) {
  if (absl::Status status = validate(request, config_.core); !status.ok()) return status;
  {
    std::lock_guard lock(mutex_);
    if (lifecycle() != Lifecycle::kReady) {
      return absl::UnavailableError(lifecycle() == Lifecycle::kFailed ? "the engine has failed"
                                                                      : "the server is draining");
    }
    if (live_ >= config_.max_live_requests) {
      ++rejected_;
      return absl::ResourceExhaustedError("the server has " + std::to_string(live_) +
                                          " requests already, its limit: try again later");
    }
    ++live_;
  }
  const base::SequenceId id(next_id_++);
  auto output = std::make_shared<OutputChannel>(config_.output_capacity_bytes);
  output->set_notify(std::move(notify));
  spdlog::debug("request {} is sequence {}: {} prompt tokens, at most {} new", request.id,
                id.value(), request.prompt.size(), request.sampling.max_tokens);
  post(Submit{.id = id, .request = std::move(request), .output = output});
  return RequestHandle(output, [this, id] { post(Cancel{id}); });
}

std::shared_ptr<const EngineStats> Engine::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

bool Engine::making_progress() const {
  return !busy_ || clock_.now() - last_progress_ < config_.hang_limit.count();
}

void Engine::drain(std::chrono::nanoseconds limit) {
  std::unique_lock lock(mutex_);
  Lifecycle expected = Lifecycle::kReady;
  lifecycle_.compare_exchange_strong(expected, Lifecycle::kDraining);
  if (none_live_.wait_for(lock, limit, [&] { return live_ == 0; })) return;
  spdlog::warn("draining took too long: {} requests are ended", live_);
  lock.unlock();
  post(EndAll{absl::UnavailableError("the server stops")});
  lock.lock();
  none_live_.wait(lock, [&] { return live_ == 0; });
}

void Engine::run() {
  for (;;) {
    std::optional<Message> message = inbox_.pop();
    if (!message) break;
    handle(std::move(*message));
    while ((message = inbox_.try_pop())) handle(std::move(*message));
    if (std::optional<sched::StepPlan> plan = core_.next_step()) {
      workers_->submit(std::make_shared<const sched::StepPlan>(std::move(*plan)));
    }
    output_->deliver(core_.take_events());
    publish();
  }
  // The queue is closed: let the step in flight finish before the workers go.
  HS_CHECK(core_.idle() || core_.step_in_flight());
}

void Engine::handle(Message message) {
  if (auto* submit = std::get_if<Submit>(&message)) {
    output_->open(submit->id, std::move(submit->output), submit->request.sampling.stop);
    core_.submit(submit->id, std::move(submit->request));
    if (lifecycle() == Lifecycle::kFailed) {
      core_.end_all(FinishReason::kError, absl::InternalError("the engine has failed"));
    }
  } else if (auto* cancel = std::get_if<Cancel>(&message)) {
    core_.cancel(cancel->id);
  } else if (auto* stop = std::get_if<Stop>(&message)) {
    core_.stop(stop->id);
  } else if (auto* end_all = std::get_if<EndAll>(&message)) {
    core_.end_all(FinishReason::kError, end_all->status);
  } else {
    take_step_result(std::get<StepResult>(message));
  }
}

void Engine::take_step_result(const StepResult& result) {
  last_progress_ = clock_.now();
  if (!result.status.ok()) {
    spdlog::error("a step failed, the engine stops: {}", result.status.ToString());
    std::lock_guard lock(mutex_);  // no submit between the state and the end of all requests
    lifecycle_ = Lifecycle::kFailed;
  }
  core_.complete(result);
}

void Engine::publish() {
  auto stats = std::make_shared<EngineStats>(core_.stats());
  stats->rejected_queue_full = rejected_;
  stats->page_bytes = config_.page_bytes;
  stats->planned = config_.planned;
  stats->allocated = workers_->allocated();
  if (!busy_ && core_.step_in_flight()) last_progress_ = clock_.now();
  busy_ = core_.step_in_flight();
  std::int64_t ended = 0;
  for (std::int64_t count : stats->finished) ended += count;
  std::lock_guard lock(mutex_);
  if (stats_) {
    for (std::int64_t count : stats_->finished) ended -= count;
  }
  live_ -= ended;
  stats_ = std::move(stats);
  if (live_ == 0) none_live_.notify_all();
}

}  // namespace hisparse::engine
