#include "engine/engine.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "base/check.h"

namespace hisparse::engine {
namespace {

// Beside one submit for each live request: a wake-up, a step result, orders of the main thread.
// With this bound the inbox never overflows, so posting never waits.
constexpr std::size_t kOtherMessages = 16;
constexpr std::size_t kOutputQueue = 256;

}  // namespace

Engine::Engine(const EngineConfig& config, std::unique_ptr<StepExecutor> executor,
               std::unique_ptr<transfer::Mover> mover, TokenBytes token_bytes,
               std::span<const kv::PersistedPage> persisted)
    : config_(config),
      inbox_(static_cast<std::size_t>(config.max_live_requests) + kOtherMessages),
      executor_(std::move(executor)),
      mover_(std::move(mover)),
      core_(config.core, clock_, *mover_) {
  core_.adopt(persisted);
  last_progress_ = clock_.now();
  executor_->set_done([this](StepResult result) { post(std::move(result)); });
  mover_->set_wake([this] { post(Wake{}); });
  output_ = std::make_unique<OutputStage>(std::move(token_bytes),
                                          OutputRequests{.stop =
                                                             [this](base::SequenceId id) {
                                                               want_end({id, FinishReason::kStop});
                                                             },
                                                         .cancel =
                                                             [this](base::SequenceId id) {
                                                               want_end({id, FinishReason::kAbort});
                                                             }},
                                          kOutputQueue);
  publish();
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  {
    std::lock_guard lock(mutex_);  // no submit passes between the state and the end of all requests
    if (lifecycle() == Lifecycle::kReady) lifecycle_ = Lifecycle::kDraining;
  }
  post(EndAll{absl::UnavailableError("the server stops")});
  inbox_.close();
  thread_.join();
  output_.reset();
  mover_.reset();  // works with what the executor owns
  executor_.reset();
  lifecycle_ = Lifecycle::kStopped;
}

void Engine::post(Message message) {
  // Refused only after close(): the engine thread has ended everything by then.
  if (!inbox_.try_push(std::move(message))) HS_CHECK(inbox_.closed());
}

void Engine::want_end(WantedEnd end) {
  {
    std::lock_guard lock(mutex_);
    wanted_ends_.push_back(end);
    if (wanted_ends_.size() > 1) return;  // a wake-up is under way
  }
  post(Wake{});
}

std::vector<Engine::WantedEnd> Engine::take_wanted_ends() {
  std::lock_guard lock(mutex_);
  return std::exchange(wanted_ends_, {});
}

absl::Status Engine::refuse(Refusal why, absl::Status status) {
  ++refused_[static_cast<std::size_t>(why)];
  return status;
}

absl::StatusOr<RequestHandle> Engine::submit(Request request, std::function<void()> notify) {
  if (absl::Status status = validate(request, config_.core); !status.ok()) {
    const bool too_large = absl::IsOutOfRange(status);
    return refuse(too_large ? Refusal::kDoesNotFit : Refusal::kInvalid, std::move(status));
  }
  {
    std::lock_guard lock(mutex_);
    if (lifecycle() != Lifecycle::kReady) {
      const bool failed = lifecycle() == Lifecycle::kFailed;
      return refuse(Refusal::kNotReady, absl::UnavailableError(failed ? "the engine has failed"
                                                                      : "the server is draining"));
    }
    if (live_ >= config_.max_live_requests) {
      return refuse(Refusal::kQueueFull,
                    absl::ResourceExhaustedError("the server has " + std::to_string(live_) +
                                                 " requests already, its limit: try again later"));
    }
    ++live_;
  }
  const base::SequenceId id(next_id_++);
  auto output = std::make_shared<OutputChannel>(config_.output_capacity_bytes);
  output->set_notify(std::move(notify));
  spdlog::debug("request {} is sequence {}: {} prompt tokens, at most {} new", request.id,
                id.value(), request.prompt.size(), request.sampling.max_tokens);
  post(Submit{.id = id, .request = std::move(request), .output = output});
  return RequestHandle(output, [this, id] { want_end({id, FinishReason::kAbort}); });
}

std::shared_ptr<const EngineStats> Engine::stats() const {
  std::shared_ptr<EngineStats> stats;
  {
    std::lock_guard lock(mutex_);
    stats = std::make_shared<EngineStats>(*stats_);
  }
  // Refusals come without a turn of the engine.
  for (std::size_t why = 0; why < kRefusals; ++why) stats->refused[why] = refused_[why];
  return stats;
}

bool Engine::making_progress() const {
  return !busy_ || clock_.now() - last_progress_ < config_.hang_limit.count();
}

void Engine::run() {
  while (std::optional<Message> message = inbox_.pop()) turn(std::move(message));
  // The queue is closed and everybody has been told: only the step in flight is left.
  HS_CHECK(core_.idle() || core_.step_in_flight());
}

void Engine::turn(std::optional<Message> message) {
  std::vector<WantedEnd> ends;
  do {
    // Taken before the inbox is emptied: whoever is in here has its submit in there.
    ends = take_wanted_ends();
    while (message) {
      handle(std::move(*message));
      message = inbox_.try_pop();
    }
    for (const WantedEnd& end : ends) {
      end.reason == FinishReason::kStop ? core_.stop(end.id) : core_.cancel(end.id);
    }
    message = inbox_.try_pop();
  } while (message || !ends.empty());
  if (std::optional<sched::StepPlan> plan = core_.next_step()) {
    busy_ = true;
    last_progress_ = clock_.now();
    executor_->submit(std::make_shared<const sched::StepPlan>(std::move(*plan)));
  }
  // A client that has seen its request end may send the next one at once: its place must be free.
  std::vector<TokenEvent> events = core_.take_events();
  publish();
  output_->deliver(std::move(events));
}

void Engine::handle(Message message) {
  if (auto* submit = std::get_if<Submit>(&message)) {
    output_->open(submit->id, std::move(submit->output), submit->request.sampling.stop);
    core_.submit(submit->id, std::move(submit->request));
    if (lifecycle() != Lifecycle::kReady) {
      core_.end_all(FinishReason::kError, absl::UnavailableError("the engine has stopped"));
    }
  } else if (auto* end_all = std::get_if<EndAll>(&message)) {
    core_.end_all(FinishReason::kError, end_all->status);
  } else if (auto* result = std::get_if<StepResult>(&message)) {
    take_step_result(*result);
  }
}

void Engine::take_step_result(const StepResult& result) {
  busy_ = false;
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
  stats->page_bytes = config_.page_bytes;
  stats->planned = config_.planned;
  stats->allocated = executor_->allocated();
  stats->allocated[base::MemoryOwner::kMetadata] += core_.metadata_bytes();
  std::int64_t ended = 0;
  for (std::int64_t count : stats->finished) ended += count;
  std::lock_guard lock(mutex_);
  if (stats_) {
    for (std::int64_t count : stats_->finished) ended -= count;
  }
  live_ -= ended;
  stats_ = std::move(stats);
}

}  // namespace hisparse::engine
