// The engine with its threads: the production Frontend.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <variant>

#include "absl/status/statusor.h"
#include "base/bounded_queue.h"
#include "base/clock.h"
#include "engine/engine_core.h"
#include "engine/frontend.h"
#include "engine/output_stage.h"
#include "engine/worker_group.h"
#include "transfer/mover.h"

namespace hisparse::engine {

struct EngineConfig {
  CoreConfig core;
  std::int32_t max_live_requests = 256;  // running and queued; one more is RESOURCE_EXHAUSTED
  std::size_t output_capacity_bytes = 256 * 1024;  // unread text of one client
  std::chrono::nanoseconds hang_limit = std::chrono::seconds(120);
  base::Ledger planned;         // for the stats
  std::int64_t page_bytes = 0;  // over all ranks; for the stats
};

// Owns the engine thread, the output thread and the worker group. Thread-safe except drain() and
// the destructor, which belong to the main thread.
class Engine final : public Frontend {
 public:
  Engine(const EngineConfig& config, std::unique_ptr<WorkerGroup> workers, TokenBytes token_bytes);
  // Ends what is still open (kAbort), waits for the step in flight, stops the threads.
  ~Engine() override;

  absl::StatusOr<RequestHandle> submit(Request request, std::function<void()> notify) override;
  std::shared_ptr<const EngineStats> stats() const override;
  Lifecycle lifecycle() const override { return lifecycle_.load(std::memory_order_acquire); }
  bool making_progress() const override;

  // Stops admission at once and waits until every request has ended, at most `limit`; then ends the
  // rest with an error. Safe to call once.
  void drain(std::chrono::nanoseconds limit);

 private:
  struct Submit {
    base::SequenceId id;
    Request request;
    std::shared_ptr<OutputChannel> output;
  };
  struct Cancel {
    base::SequenceId id;
  };
  struct Stop {
    base::SequenceId id;
  };
  struct EndAll {
    absl::Status status;
  };
  using Message = std::variant<Submit, Cancel, Stop, EndAll, StepResult>;

  void post(Message message);
  void run();
  void handle(Message message);
  void take_step_result(const StepResult& result);
  void publish();

  const EngineConfig config_;
  base::SteadyClock clock_;
  transfer::NullMover mover_;
  std::atomic<Lifecycle> lifecycle_{Lifecycle::kReady};
  std::atomic<std::int64_t> next_id_{0};
  std::atomic<std::int64_t> rejected_{0};
  std::atomic<base::Nanoseconds> last_progress_{0};
  std::atomic<bool> busy_{false};

  mutable std::mutex mutex_;
  std::condition_variable none_live_;
  std::int64_t live_ = 0;                     // submitted and not ended; guarded by mutex_
  std::shared_ptr<const EngineStats> stats_;  // guarded by mutex_

  base::BoundedQueue<Message> inbox_;
  std::unique_ptr<WorkerGroup> workers_;
  EngineCore core_;  // engine thread only
  std::unique_ptr<OutputStage> output_;
  std::thread thread_;
};

}  // namespace hisparse::engine
