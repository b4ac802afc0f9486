// An engine in miniature around the scheduler, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <ostream>
#include <span>
#include <utility>
#include <vector>

#include "kv/lifecycle_controller.h"
#include "sched/scheduler.h"

namespace hisparse::sched {

inline bool operator==(const ScheduledRows& a, const ScheduledRows& b) {
  return a.id == b.id && a.first == b.first && a.count == b.count && a.samples == b.samples;
}

inline void PrintTo(const ScheduledRows& rows, std::ostream* out) {
  *out << "rows of " << rows.id.value() << ": " << rows.count << " from " << rows.first
       << (rows.samples ? ", samples" : "");
}

namespace test {

inline constexpr std::int32_t kPageTokens = 4;

// What a test says about a request.
struct Spec {
  std::int64_t tokens = 0;
  std::int64_t written = 0;
  std::int64_t worst_case = 0;  // 0: as tokens
  std::int32_t preemptions = 0;
  base::TokenId first_token = -1;  // of counting content; -1: content of its own
};

struct Member {
  base::SequenceId id;
  std::vector<base::TokenId> content;
  std::int64_t written = 0;
  std::int64_t worst_case = 0;
  std::int32_t preemptions = 0;
};

// Plays the engine: keeps the requests by arrival and executes what the scheduler says.
class Rig {
 public:
  explicit Rig(std::int32_t slots, SchedulerConfig config = {}, std::int32_t host_slots = 0)
      : config_(config),
        controller_(
            {.page_tokens = kPageTokens, .resident_slots = slots, .host_slots = host_slots}) {}

  // A request that holds pages for exactly its known tokens but the last one, if it decodes; for
  // all of them if it is prefilled. Its first `written` rows are there.
  void run(base::SequenceId id, const Spec& spec) {
    Member member = make(id, spec);
    const std::int64_t behind = spec.tokens - spec.written;
    kv::PlanBuilder builder = controller_.plan();
    const std::int64_t held = behind == 1 ? spec.written : spec.tokens;
    ASSERT_TRUE(builder.admit(id, kRoot, {}, held));
    ASSERT_EQ(builder.extend(id, held), kv::Grant::kNow);
    controller_.commit(std::move(builder).finish());
    controller_.written(id, std::span(member.content).first(static_cast<size_t>(spec.written)));
    member.written = spec.written;
    running.push_back(std::move(member));
  }

  void wait(base::SequenceId id, const Spec& spec) { waiting.push_back(make(id, spec)); }

  ScheduleResult schedule() const {
    return sched::schedule(config_, views(running), views(waiting), controller_);
  }

  // Schedules and does what it says; `next` is the token that each sampling row yields.
  ScheduleResult step(base::TokenId next = 0) {
    ScheduleResult result = schedule();
    const kv::TransferPlan started = controller_.commit(result.kv).transfers;
    transfers_.insert(transfers_.end(), started.demotions.begin(), started.demotions.end());
    EXPECT_EQ(controller_.check_invariants(), std::nullopt);
    for (base::SequenceId id : result.preempted) preempt(id);
    for (base::SequenceId id : result.admitted) {
      const bool next_in_line = !waiting.empty() && waiting.front().id == id;
      EXPECT_TRUE(next_in_line) << "admitted out of turn";
      if (!next_in_line) break;
      running.push_back(std::move(waiting.front()));
      waiting.pop_front();
      running.back().written = controller_.written_tokens(id);
    }
    for (const ScheduledRows& rows : result.rows) execute(rows, next);
    EXPECT_EQ(controller_.check_invariants(), std::nullopt);
    return result;
  }

  // So many pages have been copied down.
  void finish_transfers(std::size_t count) {
    ASSERT_LE(count, transfers_.size());
    for (std::size_t i = 0; i < count; ++i) {
      controller_.apply({.id = transfers_[i].id, .status = absl::OkStatus()});
    }
    transfers_.erase(transfers_.begin(), transfers_.begin() + static_cast<std::ptrdiff_t>(count));
  }
  std::size_t transfers() const { return transfers_.size(); }

  // The request ends: its pages go.
  void retire(base::SequenceId id) {
    controller_.release(id);
    std::erase_if(running, [&](const Member& member) { return member.id == id; });
  }

  std::int64_t pages(base::SequenceId id) const {
    return static_cast<std::int64_t>(controller_.locations(id).size());
  }
  const kv::LifecycleController& controller() const { return controller_; }

  std::deque<Member> running;
  std::deque<Member> waiting;

 private:
  static Member make(base::SequenceId id, const Spec& spec) {
    Member member{.id = id,
                  .content = {},
                  .written = 0,
                  .worst_case = spec.worst_case == 0 ? spec.tokens : spec.worst_case,
                  .preemptions = spec.preemptions};
    constexpr base::TokenId kOwn = 1000;
    const auto first =
        spec.first_token >= 0 ? spec.first_token : static_cast<base::TokenId>(id.value()) * kOwn;
    for (base::TokenId i = 0; i < spec.tokens; ++i) member.content.push_back(first + i);
    return member;
  }

  std::vector<SequenceView> views(const std::deque<Member>& members) const {
    std::vector<SequenceView> result;
    for (const Member& member : members) {
      result.push_back({.id = member.id,
                        .tokens = static_cast<std::int64_t>(member.content.size()),
                        .written = member.written,
                        .worst_case = member.worst_case,
                        .preemptions = member.preemptions,
                        .root = kRoot,
                        .content = member.content});
    }
    return result;
  }

  // Back to the head of the queue, in order of arrival (ids count up).
  void preempt(base::SequenceId id) {
    const auto found = std::ranges::find(running, id, &Member::id);
    ASSERT_NE(found, running.end());
    Member member = std::move(*found);
    running.erase(found);
    member.written = 0;
    ++member.preemptions;
    waiting.insert(std::ranges::upper_bound(waiting, id, {}, &Member::id), std::move(member));
  }

  void execute(const ScheduledRows& rows, base::TokenId next) {
    const auto found = std::ranges::find(running, rows.id, &Member::id);
    ASSERT_NE(found, running.end());
    ASSERT_EQ(rows.first, found->written);
    ASSERT_GE(rows.count, 1);
    const auto tokens =
        std::span(found->content)
            .subspan(static_cast<size_t>(rows.first), static_cast<size_t>(rows.count));
    controller_.written(rows.id, tokens);
    found->written += rows.count;
    const bool last = found->written == static_cast<std::int64_t>(found->content.size());
    ASSERT_EQ(rows.samples, last);
    if (last) found->content.push_back(next);
  }

  const kv::BlockKey kRoot = kv::root_key({"tenant", "model", "f32"});
  SchedulerConfig config_;
  kv::LifecycleController controller_;
  std::vector<kv::TransferOp> transfers_;  // in flight
};

}  // namespace test
}  // namespace hisparse::sched
