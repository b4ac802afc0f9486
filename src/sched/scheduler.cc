#include "sched/scheduler.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace hisparse::sched {
namespace {

// One call of schedule(): the plan under construction.
class Pass {
 public:
  Pass(const SchedulerConfig& config, std::span<const SequenceView> running,
       std::span<const SequenceView> waiting, const kv::LifecycleController& controller)
      : config_(config),
        running_(running),
        waiting_(waiting),
        controller_(controller),
        pages_(controller.plan()),
        budget_(config.max_batched_tokens),
        state_(running.size(), State::kIdle) {}

  ScheduleResult run() {
    schedule_decodes();
    schedule_prefill_chunks();
    if (result_.preempted.empty()) admit_waiting();
    result_.kv = std::move(pages_).finish();
    name_starved();
    return std::move(result_);
  }

 private:
  enum class State { kIdle, kScheduled, kPreempted };

  // A decoding sequence has one known token whose row is not written, and may lack the page for it.
  void schedule_decodes() {
    for (std::size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
      const SequenceView& sequence = running_[i];
      if (state_[i] != State::kIdle || sequence.tokens - sequence.written != 1) continue;
      // Older requests go on; this one waits for pages.
      if (!extend(i, sequence.written + 1)) continue;
      add_rows(sequence, sequence.written, 1);
      state_[i] = State::kScheduled;
    }
  }

  // Room for all known tokens was reserved at admission; resident pages come chunk by chunk.
  void schedule_prefill_chunks() {
    for (std::size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
      const SequenceView& sequence = running_[i];
      if (state_[i] != State::kIdle || sequence.tokens - sequence.written <= 1) continue;
      Chunk chunk = chunk_with_room(sequence, sequence.written);
      if (chunk.rows == 0 && !chunk.waits && extend(i, sequence.written + 1)) chunk.rows = 1;
      if (chunk.rows == 0) continue;
      add_rows(sequence, sequence.written, chunk.rows);
      state_[i] = State::kScheduled;
    }
  }

  // Rows whose pages are there, or none while room for more is being made.
  struct Chunk {
    std::int64_t rows = 0;
    bool waits = false;
  };

  // Pages that are not resident are read once for each chunk, so a chunk of less than half its size
  // waits while room is being made.
  Chunk chunk_with_room(const SequenceView& sequence, std::int64_t first) {
    const std::int64_t wanted = std::min(budget_, sequence.tokens - first);
    const std::int64_t room = pages_.tokens_with_room(sequence.id, first + wanted) - first;
    if (room < wanted) {
      const bool more_comes = pages_.extend(sequence.id, first + wanted) == kv::Grant::kLater;
      if (more_comes && 2 * room < wanted) return {.waits = true};
    }
    if (room <= 0 || pages_.extend(sequence.id, first + room) != kv::Grant::kNow) return {};
    return {.rows = room};
  }

  void admit_waiting() {
    auto seats = static_cast<std::int64_t>(config_.max_sequences) -
                 static_cast<std::int64_t>(running_.size());
    for (const SequenceView& sequence : waiting_) {
      // First come, first served: nobody passes a request that does not fit.
      if (budget_ <= 0 || seats <= 0 || !admit(sequence)) return;
      --seats;
    }
  }

  bool admit(const SequenceView& sequence) {
    const bool last_chance = sequence.preemptions >= config_.max_preemptions;
    const std::int64_t tokens = last_chance ? sequence.worst_case : sequence.tokens;
    const kv::PrefixMatch match = controller_.match(sequence.root, sequence.content);
    // A page of room for each request that runs already, so that admission does not cause
    // preemption at once.
    const auto matched = static_cast<std::int64_t>(match.blocks.size());
    const std::int64_t missing = pages_.pages_missing(sequence.id, tokens) - matched;
    const auto growth = static_cast<std::int64_t>(running_.size() + result_.admitted.size());
    if (missing + growth > pages_.available_pages()) return false;
    if (!pages_.admit(sequence.id, sequence.root, match, tokens)) return false;
    result_.admitted.push_back(sequence.id);
    const Chunk chunk = chunk_with_room(sequence, match.tokens);
    if (chunk.rows > 0) add_rows(sequence, match.tokens, chunk.rows);
    return true;
  }

  // Pages for `tokens` tokens of running_[i], if need be from the youngest request behind it. False
  // while pages are being copied down, too: they make room for the next step.
  bool extend(std::size_t i, std::int64_t tokens) {
    for (;;) {
      const kv::Grant grant = pages_.extend(running_[i].id, tokens);
      if (grant == kv::Grant::kNow) return true;
      if (grant == kv::Grant::kLater) return false;
      const std::optional<std::size_t> victim = youngest_victim_after(i, grant);
      if (!victim) return false;
      pages_.release(running_[*victim].id);
      state_[*victim] = State::kPreempted;
      result_.preempted.push_back(running_[*victim].id);
    }
  }

  std::optional<std::size_t> youngest_victim_after(std::size_t i, kv::Grant missing) const {
    for (std::size_t j = running_.size(); j-- > i + 1;) {
      if (state_[j] == State::kIdle && running_[j].preemptions < config_.max_preemptions &&
          pages_.release_helps(running_[j].id, missing)) {
        return j;
      }
    }
    return std::nullopt;
  }

  void add_rows(const SequenceView& sequence, std::int64_t first, std::int64_t wanted) {
    const std::int64_t count = std::min(wanted, budget_);
    budget_ -= count;
    result_.rows.push_back({.id = sequence.id,
                            .first = first,
                            .count = static_cast<std::int32_t>(count),
                            .samples = first + count == sequence.tokens});
  }

  void name_starved() {
    if (!result_.rows.empty() || !result_.kv.empty() || controller_.transfers_in_flight()) return;
    if (!running_.empty()) {
      result_.starved = running_.front().id;
    } else if (!waiting_.empty()) {
      result_.starved = waiting_.front().id;
    }
  }

  const SchedulerConfig& config_;
  std::span<const SequenceView> running_;
  std::span<const SequenceView> waiting_;
  const kv::LifecycleController& controller_;
  kv::PlanBuilder pages_;
  std::int64_t budget_;
  std::vector<State> state_;  // of running_
  ScheduleResult result_;
};

}  // namespace

ScheduleResult schedule(const SchedulerConfig& config, std::span<const SequenceView> running,
                        std::span<const SequenceView> waiting,
                        const kv::LifecycleController& controller) {
  return Pass(config, running, waiting, controller).run();
}

}  // namespace hisparse::sched
