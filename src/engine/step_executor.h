// Who runs steps: the worker group in production, a model of it in the simulator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"
#include "device/device.h"
#include "kv/heat.h"
#include "kv/transfer.h"
#include "sched/step_plan.h"

namespace hisparse::engine {

// What steps have read from disk for pages that were not in memory, and how long they waited for
// it, since the start. A decode step is one in which every row is sampled.
struct Streamed {
  std::int64_t decode_bytes = 0;
  std::int64_t prefill_bytes = 0;
  base::Nanoseconds decode_wait = 0;
  base::Nanoseconds prefill_wait = 0;

  std::int64_t bytes() const { return decode_bytes + prefill_bytes; }
  Streamed& operator+=(const Streamed& other) {
    decode_bytes += other.decode_bytes;
    prefill_bytes += other.prefill_bytes;
    decode_wait += other.decode_wait;
    prefill_wait += other.prefill_wait;
    return *this;
  }
};

// What came of a step, once every rank has finished it.
struct StepResult {
  base::StepId id;
  absl::Status status;                // not ok: the device or a collective failed; the engine stops
  std::vector<base::TokenId> tokens;  // one per StepPlan::samples
  // Pages that the step read and that do not hold what was written there: what the sequences that
  // read them have computed is void.
  std::vector<kv::Location> bad_pages = {};
  // One per StepPlan::observations: what the heads of rank 0 looked at, without pages on disk.
  std::vector<std::vector<kv::PageMass>> observed = {};
  device::DeviceCounters counters;  // of rank 0, since the start
  Streamed streamed = {};           // over all ranks
};

// Called once for each step, in step order, on a thread of the executor.
using StepDone = std::function<void(StepResult)>;

class StepExecutor {
 public:
  // Destroyed when the step in flight, if any, has been reported.
  virtual ~StepExecutor() = default;
  // Before the first submit().
  virtual void set_done(StepDone done) = 0;
  // Engine thread. Steps run in the order of submission; each gives one StepResult as a message to
  // the engine.
  virtual void submit(std::shared_ptr<const sched::StepPlan> plan) = 0;
  // What the devices' allocators hold, over all ranks. Any thread.
  virtual base::Ledger allocated() const = 0;
};

}  // namespace hisparse::engine
