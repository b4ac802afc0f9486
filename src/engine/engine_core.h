// The engine without its threads: requests, scheduler, KV pages and step results as a plain state
// machine. The engine thread drives it in production, the simulator drives it with a virtual clock
// and a fake device.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/engine_stats.h"
#include "engine/sequence.h"
#include "engine/step_executor.h"
#include "kv/lifecycle_controller.h"
#include "sched/scheduler.h"
#include "transfer/mover.h"

namespace hisparse::engine {

// kInjected: the KV rows of a prompt come from a KvSource, but for its last token.
enum class PromptRows : std::uint8_t { kComputed, kInjected };

struct CoreConfig {
  sched::SchedulerConfig scheduler;
  kv::ControllerConfig kv;
  std::string model_digest;  // with `numerics`: what cached pages may be shared between
  std::string numerics;
  std::vector<base::TokenId> end_tokens;  // of the model
  std::int64_t max_model_len = 0;
  std::int32_t vocabulary = 0;
  PromptRows prompt_rows = PromptRows::kComputed;
};

// "This request has one token more", or "has ended" (a stop or end token counts in `usage` and is
// not shown). Events of one request are in order; nothing follows a finish.
struct TokenEvent {
  base::SequenceId sequence;
  std::optional<base::TokenId> token;
  Usage usage;
  std::optional<Finish> finish;
};

// Whether the request can ever be served under `config`: InvalidArgument for parameters, OutOfRange
// for sizes. Pure.
absl::Status validate(const Request& request, const CoreConfig& config);

// Owns the sequences, the LifecycleController and the counters. Engine thread only. One step is in
// flight at a time; resources of an ended request go when nothing of it is in flight. Every
// submitted request gets exactly one finish event.
class EngineCore {
 public:
  // Clock and mover must outlive it.
  EngineCore(const CoreConfig& config, const base::Clock& clock, transfer::Mover& mover);

  // What an earlier process left on disk; before the first request.
  void adopt(std::span<const kv::PersistedPage> pages);

  // A valid request (see validate) under a new id.
  void submit(base::SequenceId id, Request request);
  // The client is gone, or has enough because a stop string matched. Unknown ids have ended
  // already: ignored.
  void cancel(base::SequenceId id);
  void stop(base::SequenceId id);
  // Ends every request with `reason` and `status`.
  void end_all(FinishReason reason, const absl::Status& status);

  // The next step, if there is work and none is in flight. Requests that can never run end here.
  std::optional<sched::StepPlan> next_step();
  // The result of the step in flight. Its failure ends every request.
  void complete(const StepResult& result);

  // What happened since the last call, in order.
  std::vector<TokenEvent> take_events();

  bool idle() const { return sequences_.empty(); }
  bool step_in_flight() const { return in_flight_.has_value(); }
  std::size_t live_sequences() const { return sequences_.size(); }
  EngineStats stats() const;
  const kv::LifecycleController& controller() const { return controller_; }
  std::int64_t metadata_bytes() const;  // of the controller, for the ledger

 private:
  Sequence* find(base::SequenceId id);
  std::vector<sched::SequenceView> views(std::span<const base::SequenceId> ids) const;
  void enqueue(Sequence& sequence);
  void begin_running(Sequence& sequence, std::int64_t cached);
  void preempt(Sequence& sequence, std::int64_t rows_lost);
  void requeue(Sequence& sequence, std::int64_t rows_lost);
  void lose_page(const kv::Location& location);
  void apply_transfers();
  void give_back_slot(Sequence& sequence);
  void persist_idle();
  std::optional<sched::StepPlan> try_step(bool& again);
  sched::StepPlan build_plan(const sched::ScheduleResult& schedule);
  void add_rows(const sched::ScheduledRows& rows, sched::StepPlan& plan);
  void observe_some(Sequence& sequence, const sched::ScheduledRows& rows, sched::StepPlan& plan);
  std::int32_t injected(const Sequence& sequence, const sched::ScheduledRows& rows) const;
  void absorb(kv::KvCommit commit);
  void accept_token(Sequence& sequence, base::TokenId token);
  void end(Sequence& sequence, Finish finish);
  void retire(Sequence& sequence);
  void note_token_time(Sequence& sequence);

  const CoreConfig config_;
  const base::Clock& clock_;
  transfer::Mover& mover_;
  kv::LifecycleController controller_;
  std::map<base::SequenceId, Sequence> sequences_;
  std::vector<base::SequenceId> running_;  // by arrival
  std::vector<base::SequenceId> waiting_;  // by arrival
  std::vector<std::int32_t> free_slots_;   // rows of the block table
  std::optional<sched::StepPlan> in_flight_;
  std::vector<base::SequenceId> in_flight_ids_;  // of in_flight_->rows
  // No step can run until pages have been copied down; since when.
  std::optional<base::Nanoseconds> room_wanted_since_;
  std::vector<kv::TableDelta> pending_deltas_;  // for the next step
  std::vector<kv::Location> pending_freed_;
  std::vector<TokenEvent> events_;
  std::int64_t next_arrival_ = 0;
  std::int64_t next_step_ = 0;
  EngineStats stats_;
};

}  // namespace hisparse::engine
