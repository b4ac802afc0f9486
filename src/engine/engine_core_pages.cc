// What the engine's state machine has to do with pages and their moves.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/engine_core.h"
#include "engine/kv_trace.h"
#include "kv/metadata.h"

namespace hisparse::engine {
namespace {

// How often each decoding request is asked what it looks at.
constexpr std::int64_t kObservationsPerReplan = 4;

}  // namespace

void EngineCore::adopt(std::span<const kv::PersistedPage> pages) {
  const std::int64_t adopted = controller_.adopt(pages);
  const std::int64_t left_out = static_cast<std::int64_t>(pages.size()) - adopted;
  if (left_out == 0) return;
  spdlog::warn("{} of the {} KV pages on disk are left out: what was before them has gone",
               left_out, pages.size());
}

void EngineCore::absorb(kv::KvCommit commit) {
  pending_deltas_.insert(pending_deltas_.end(), commit.deltas.begin(), commit.deltas.end());
  pending_freed_.insert(pending_freed_.end(), commit.freed.begin(), commit.freed.end());
  trace(commit.transfers);
  trace(commit.replan);
  // The mover fills these slots; poison would come too late.
  for (const auto* ops : {&commit.transfers.restores, &commit.transfers.demotions}) {
    for (const kv::TransferOp& op : *ops) std::erase(pending_freed_, op.to);
  }
  if (!commit.transfers.empty()) mover_.submit(std::move(commit.transfers));
}

// Whoever reads the page begins again with what is left of its prefix: its own rows are computed
// from bad ones.
void EngineCore::lose_page(const kv::Location& location) {
  for (base::SequenceId id : controller_.readers(location)) {
    Sequence& sequence = sequences_.at(id);
    if (sequence.retiring) {
      retire(sequence);
      continue;
    }
    const std::int64_t rows = controller_.written_tokens(id);
    absorb(controller_.release(id));
    requeue(sequence, rows);
  }
  absorb(controller_.lose(location));
}

void EngineCore::apply_transfers() {
  for (const kv::TransferDone& done : mover_.drain()) {
    if (!done.status.ok()) {
      spdlog::warn("transfer {} failed: {}", done.id.value(), done.status.ToString());
    }
    kv::KvCommit commit = controller_.apply(done);
    const std::optional<kv::Location> lost = commit.lost;
    absorb(std::move(commit));
    if (lost) lose_page(*lost);
  }
}

// Pages of requests that have ended go on to disk; each completion wakes the engine for more.
void EngineCore::persist_idle() {
  if (config_.kv.persistence == kv::Persistence::kOff) return;
  const kv::KvPlan plan = controller_.plan().finish();
  if (plan.empty()) return;
  trace(plan);
  absorb(controller_.commit(plan));
}

// Of the row that is about to be added. Which layer is asked follows from the position, so that all
// have their turn.
void EngineCore::observe_some(Sequence& sequence, const sched::ScheduledRows& rows,
                              sched::StepPlan& plan) {
  if (!controller_.wants_observations()) return;
  const std::int64_t interval =
      std::max<std::int64_t>(1, config_.kv.replan_tokens / kObservationsPerReplan);
  if (rows.first - sequence.observed_at < interval) return;
  if (plan.observations.size() == static_cast<std::size_t>(sched::kMaxObservations)) return;
  sequence.observed_at = rows.first;
  plan.observations.push_back({.row = static_cast<std::int32_t>(plan.rows.size()),
                               .turn = rows.first / interval + sequence.id.value()});
}

std::int64_t EngineCore::metadata_bytes() const {
  const std::int64_t page_tokens = config_.kv.page_tokens;
  return kv::metadata_bytes(
      config_.kv, {.sequences = config_.scheduler.max_sequences,
                   .pages_per_sequence = (config_.max_model_len + page_tokens - 1) / page_tokens});
}

// Also when a request is computed again after a preemption; what it has generated never is.
std::int32_t EngineCore::injected(const Sequence& sequence,
                                  const sched::ScheduledRows& rows) const {
  if (config_.prompt_rows == PromptRows::kComputed) return 0;
  const std::int64_t given = sequence.prompt_tokens - 1 - rows.first;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(given, 0, rows.count));
}

}  // namespace hisparse::engine
