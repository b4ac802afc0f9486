#include "engine/engine_core.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/kv_trace.h"

namespace hisparse::engine {
namespace {

constexpr double kNanosecondsPerSecond = 1e9;

double seconds(base::Nanoseconds duration) {
  return static_cast<double>(duration) / kNanosecondsPerSecond;
}

Finish finish_because(FinishReason reason, absl::Status status = absl::OkStatus()) {
  Finish finish;
  finish.reason = reason;
  finish.status = std::move(status);
  return finish;
}

Usage usage_of(const Sequence& sequence) {
  return {.prompt_tokens = sequence.prompt_tokens,
          .completion_tokens = sequence.output_tokens(),
          .cached_tokens = std::max(sequence.cached_tokens, 0)};
}

void erase_id(std::vector<base::SequenceId>& ids, base::SequenceId id) { std::erase(ids, id); }

}  // namespace

EngineCore::EngineCore(const CoreConfig& config, const base::Clock& clock, transfer::Mover& mover)
    : config_(config), clock_(clock), mover_(mover), controller_(config.kv) {
  for (std::int32_t slot = config_.scheduler.max_sequences; slot-- > 0;)
    free_slots_.push_back(slot);
}

Sequence* EngineCore::find(base::SequenceId id) {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

void EngineCore::enqueue(Sequence& sequence) {
  sequence.phase = Phase::kWaiting;
  const auto older = [this](base::SequenceId id, std::int64_t arrival) {
    return sequences_.at(id).arrival < arrival;
  };
  waiting_.insert(std::lower_bound(waiting_.begin(), waiting_.end(), sequence.arrival, older),
                  sequence.id);
}

void EngineCore::submit(base::SequenceId id, Request request) {
  HS_CHECK(find(id) == nullptr);
  Sequence& sequence = sequences_[id];
  sequence.id = id;
  sequence.arrival = next_arrival_++;
  sequence.tokens = std::exchange(request.prompt, {});
  sequence.prompt_tokens = static_cast<std::int32_t>(sequence.tokens.size());
  sequence.request = std::move(request);
  sequence.root = kv::root_key({.cache_salt = sequence.request.cache_salt,
                                .model_digest = config_.model_digest,
                                .numerics = config_.numerics});
  sequence.submitted = clock_.now();
  enqueue(sequence);
}

void EngineCore::cancel(base::SequenceId id) {
  if (Sequence* sequence = find(id)) {
    end(*sequence, finish_because(FinishReason::kAbort));
  }
}

void EngineCore::stop(base::SequenceId id) {
  if (Sequence* sequence = find(id)) {
    end(*sequence, finish_because(FinishReason::kStop));
  }
}

void EngineCore::end_all(FinishReason reason, const absl::Status& status) {
  std::vector<base::SequenceId> ids;
  for (const auto& [id, sequence] : sequences_) ids.push_back(id);
  for (base::SequenceId id : ids) {
    end(sequences_.at(id), finish_because(reason, status));
  }
}

void EngineCore::end(Sequence& sequence, Finish finish) {
  if (sequence.retiring) return;
  ++stats_.finished[static_cast<std::size_t>(finish.reason)];
  stats_.request_latency.observe(seconds(clock_.now() - sequence.submitted));
  events_.push_back({.sequence = sequence.id,
                     .token = std::nullopt,
                     .usage = usage_of(sequence),
                     .finish = finish});
  sequence.retiring = std::move(finish);
  if (!sequence.in_flight) retire(sequence);
}

void EngineCore::retire(Sequence& sequence) {
  if (sequence.phase == Phase::kRunning) {
    absorb(controller_.release(sequence.id));
    give_back_slot(sequence);
    erase_id(running_, sequence.id);
  } else {
    erase_id(waiting_, sequence.id);
  }
  sequences_.erase(sequence.id);
}

void EngineCore::give_back_slot(Sequence& sequence) {
  free_slots_.push_back(std::exchange(sequence.slot, -1));
  std::erase_if(pending_deltas_,
                [&](const kv::TableDelta& delta) { return delta.sequence == sequence.id; });
}

std::vector<sched::SequenceView> EngineCore::views(std::span<const base::SequenceId> ids) const {
  std::vector<sched::SequenceView> result;
  result.reserve(ids.size());
  for (base::SequenceId id : ids) {
    const Sequence& sequence = sequences_.at(id);
    const bool running = sequence.phase == Phase::kRunning;
    result.push_back({.id = id,
                      .tokens = static_cast<std::int64_t>(sequence.tokens.size()),
                      .written = running ? controller_.written_tokens(id) : 0,
                      .worst_case = sequence.worst_case_tokens(),
                      .preemptions = sequence.preemptions,
                      .root = sequence.root,
                      .content = sequence.tokens});
  }
  return result;
}

void EngineCore::preempt(Sequence& sequence, std::int64_t rows_lost) {
  ++sequence.preemptions;
  ++stats_.preemptions;
  requeue(sequence, rows_lost);
}

void EngineCore::requeue(Sequence& sequence, std::int64_t rows_lost) {
  sequence.rows_lost = rows_lost;
  give_back_slot(sequence);
  erase_id(running_, sequence.id);
  enqueue(sequence);
}

void EngineCore::begin_running(Sequence& sequence, std::int64_t cached) {
  erase_id(waiting_, sequence.id);
  sequence.phase = Phase::kRunning;
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  const auto older = [this](base::SequenceId id, std::int64_t arrival) {
    return sequences_.at(id).arrival < arrival;
  };
  running_.insert(std::lower_bound(running_.begin(), running_.end(), sequence.arrival, older),
                  sequence.id);
  if (sequence.cached_tokens >= 0) {
    // Admitted again after a preemption: what the cache still holds is not computed again.
    stats_.recomputed_tokens += std::max<std::int64_t>(sequence.rows_lost - cached, 0);
    return;
  }
  sequence.cached_tokens = static_cast<std::int32_t>(cached);
  stats_.prompt_tokens += sequence.prompt_tokens;
  stats_.cached_prompt_tokens += cached;
  stats_.queue_time.observe(seconds(clock_.now() - sequence.submitted));
}

std::optional<sched::StepPlan> EngineCore::next_step() {
  // The step in flight reads pages where they were when it was planned.
  if (in_flight_) return std::nullopt;
  apply_transfers();
  // Each turn of this loop ends, preempts or admits somebody or gives up cached pages (a bounded
  // number of times each), or returns.
  if (sequences_.empty()) persist_idle();
  while (!sequences_.empty()) {
    bool again = false;
    std::optional<sched::StepPlan> plan = try_step(again);
    if (plan || !again) return plan;
  }
  return std::nullopt;
}

std::optional<sched::StepPlan> EngineCore::try_step(bool& again) {
  const std::vector<sched::SequenceView> running = views(running_);
  const std::vector<sched::SequenceView> waiting = views(waiting_);
  const sched::ScheduleResult schedule =
      sched::schedule(config_.scheduler, running, waiting, controller_);
  if (schedule.starved.valid()) {
    end(sequences_.at(schedule.starved),
        finish_because(FinishReason::kError,
                       absl::ResourceExhaustedError("the KV cache has no room for this request and "
                                                    "nothing else can be given up")));
    again = true;
    return std::nullopt;
  }
  std::vector<std::int64_t> rows_lost;
  for (base::SequenceId id : schedule.preempted) {
    rows_lost.push_back(controller_.written_tokens(id));
  }
  trace(schedule.kv);
  kv::KvCommit commit = controller_.commit(schedule.kv);
  for (std::size_t i = 0; i < schedule.preempted.size(); ++i) {
    preempt(sequences_.at(schedule.preempted[i]), rows_lost[i]);
  }
  for (base::SequenceId id : schedule.admitted) {
    begin_running(sequences_.at(id), controller_.written_tokens(id));
  }
  absorb(std::move(commit));
  if (schedule.rows.empty()) {
    // What is being copied makes room; its completion wakes the engine.
    again = !controller_.transfers_in_flight();
    if (!again && !room_wanted_since_) room_wanted_since_ = clock_.now();
    return std::nullopt;
  }
  if (room_wanted_since_) {
    stats_.room_wait += seconds(clock_.now() - *std::exchange(room_wanted_since_, std::nullopt));
  }
  return build_plan(schedule);
}

sched::StepPlan EngineCore::build_plan(const sched::ScheduleResult& schedule) {
  sched::StepPlan plan;
  plan.id = base::StepId(next_step_++);
  plan.freed = std::exchange(pending_freed_, {});
  for (const kv::TableDelta& delta : std::exchange(pending_deltas_, {})) {
    plan.deltas.push_back({.sequence_slot = sequences_.at(delta.sequence).slot,
                           .page = delta.page,
                           .location = delta.location});
  }
  in_flight_ids_.clear();
  for (const sched::ScheduledRows& rows : schedule.rows) add_rows(rows, plan);
  ++stats_.steps;
  stats_.step_rows.observe(static_cast<double>(plan.tokens.size()));
  in_flight_ = plan;
  return plan;
}

void EngineCore::add_rows(const sched::ScheduledRows& rows, sched::StepPlan& plan) {
  Sequence& sequence = sequences_.at(rows.id);
  sequence.in_flight = true;
  in_flight_ids_.push_back(rows.id);
  if (rows.samples) {
    const SamplingParams& sampling = sequence.request.sampling;
    plan.samples.push_back({.row = static_cast<std::int32_t>(plan.rows.size()),
                            .temperature = sampling.temperature,
                            .top_p = sampling.top_p,
                            .top_k = sampling.top_k,
                            .seed = sampling.seed,
                            .counter = static_cast<std::uint64_t>(sequence.output_tokens())});
  }
  if (rows.samples && rows.count == 1) observe_some(sequence, rows, plan);
  plan.rows.push_back({.sequence_slot = sequence.slot,
                       .first = rows.first,
                       .count = rows.count,
                       .tokens_begin = static_cast<std::int32_t>(plan.tokens.size()),
                       .injected = injected(sequence, rows)});
  const auto first = sequence.tokens.begin() + rows.first;
  plan.tokens.insert(plan.tokens.end(), first, first + rows.count);
}

void EngineCore::complete(const StepResult& result) {
  HS_CHECK(in_flight_ && in_flight_->id == result.id);
  const sched::StepPlan plan = std::move(*std::exchange(in_flight_, std::nullopt));
  const std::vector<base::SequenceId> ids = std::exchange(in_flight_ids_, {});
  stats_.linear_calls = result.counters.linear_calls;
  stats_.linear_rows = result.counters.linear_rows;
  stats_.streamed = result.streamed;
  for (base::SequenceId id : ids) sequences_.at(id).in_flight = false;
  for (const kv::Location& page : result.bad_pages) lose_page(page);
  // Whoever has ended meanwhile, or has read a bad page, gets nothing from this step.
  const auto goes_on = [this](base::SequenceId id) {
    const Sequence* sequence = find(id);
    return sequence != nullptr && !sequence->retiring && sequence->phase == Phase::kRunning;
  };
  if (result.status.ok()) HS_CHECK(result.observed.size() == plan.observations.size());
  for (std::size_t i = 0; i < result.observed.size(); ++i) {
    const base::SequenceId id = ids[static_cast<std::size_t>(plan.observations[i].row)];
    if (goes_on(id)) controller_.observe(id, result.observed[i]);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!goes_on(ids[i]) || !result.status.ok()) continue;
    const sched::StepRows& rows = plan.rows[i];
    absorb(controller_.written(ids[i], std::span(plan.tokens)
                                           .subspan(static_cast<std::size_t>(rows.tokens_begin),
                                                    static_cast<std::size_t>(rows.count))));
  }
  if (!result.status.ok()) {
    end_all(FinishReason::kError, result.status);
  } else {
    HS_CHECK(result.tokens.size() == plan.samples.size());
    for (std::size_t i = 0; i < plan.samples.size(); ++i) {
      const base::SequenceId id = ids[static_cast<std::size_t>(plan.samples[i].row)];
      if (goes_on(id)) accept_token(sequences_.at(id), result.tokens[i]);
    }
  }
  for (base::SequenceId id : ids) {
    if (Sequence* sequence = find(id); sequence != nullptr && sequence->retiring) retire(*sequence);
  }
}

void EngineCore::note_token_time(Sequence& sequence) {
  const base::Nanoseconds now = clock_.now();
  if (sequence.last_token == 0) {
    stats_.time_to_first_token.observe(seconds(now - sequence.submitted));
  } else {
    stats_.inter_token_latency.observe(seconds(now - sequence.last_token));
  }
  sequence.last_token = now;
}

void EngineCore::accept_token(Sequence& sequence, base::TokenId token) {
  const SamplingParams& sampling = sequence.request.sampling;
  sequence.tokens.push_back(token);
  ++stats_.generation_tokens;
  note_token_time(sequence);
  const auto among = [token](const std::vector<base::TokenId>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  const bool stop_token = among(sampling.stop_token_ids);
  if (stop_token || (!sampling.ignore_eos && among(config_.end_tokens))) {
    Finish finish;
    if (stop_token) finish.stop_token = token;
    end(sequence, std::move(finish));
    return;
  }
  events_.push_back({.sequence = sequence.id,
                     .token = token,
                     .usage = usage_of(sequence),
                     .finish = std::nullopt});
  if (sequence.output_tokens() >= sampling.max_tokens) {
    end(sequence, finish_because(FinishReason::kLength));
  }
}

std::vector<TokenEvent> EngineCore::take_events() { return std::exchange(events_, {}); }

EngineStats EngineCore::stats() const {
  EngineStats stats = stats_;
  stats.running = static_cast<std::int64_t>(running_.size());
  stats.waiting = static_cast<std::int64_t>(waiting_.size());
  stats.kv = controller_.stats();
  stats.page_tokens = config_.kv.page_tokens;
  return stats;
}

}  // namespace hisparse::engine
