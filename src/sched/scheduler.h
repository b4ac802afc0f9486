// The scheduler: a pure function from the state of the requests and of the KV pages to what runs
// next.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kv/lifecycle_controller.h"

namespace hisparse::sched {

struct SchedulerConfig {
  std::int64_t max_batched_tokens = 512;  // rows in a step
  std::int32_t max_sequences = 64;        // requests that hold pages at the same time
  std::int32_t max_preemptions = 3;       // of one request; after that it runs to its end
};

// One request as the scheduler sees it.
struct SequenceView {
  base::SequenceId id;
  std::int64_t tokens = 0;      // known so far: prompt and output
  std::int64_t written = 0;     // whose KV rows are in the pages (0 while waiting)
  std::int64_t worst_case = 0;  // tokens whose rows it may ever need: prompt + max_tokens - 1
  std::int32_t preemptions = 0;
  kv::BlockKey root;                       // key before its first page
  std::span<const base::TokenId> content;  // its tokens; valid during the call
};

// Rows to run: tokens first ... first + count - 1. `samples` when the last known token is among
// them.
struct ScheduledRows {
  base::SequenceId id;
  std::int64_t first = 0;
  std::int32_t count = 0;
  bool samples = false;
};

struct ScheduleResult {
  std::vector<ScheduledRows> rows;
  std::vector<base::SequenceId> admitted;  // of `waiting`, in order
  std::vector<base::SequenceId>
      preempted;  // of `running`: pages released, back to the head of the queue
  kv::KvPlan kv;
  // Nothing runs, nothing moves and nothing could: the request to fail with RESOURCE_EXHAUSTED, so
  // that the others
  // go on.
  base::SequenceId starved;
};

// `running` and `waiting` are ordered by arrival, oldest first; no step is in flight for any of
// them. Decode rows come first, then prefill chunks of running requests, then new admissions, all
// under max_batched_tokens.
//
// Room for the known tokens of a request is reserved at its admission, over all tiers; resident
// pages are taken as it runs, and a request waits while the controller makes room by copying pages
// down. A request that lacks room takes it from the youngest running request that has been
// preempted less than max_preemptions times (never from an older one). A request at the cap is
// admitted only when its worst case fits and keeps that much reserved, so it always runs to its
// end: no livelock.
ScheduleResult schedule(const SchedulerConfig& config, std::span<const SequenceView> running,
                        std::span<const SequenceView> waiting,
                        const kv::LifecycleController& controller);

}  // namespace hisparse::sched
