// The engine with its threads: the production Frontend.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bounded_queue.h"
#include "base/clock.h"
#include "engine/engine_core.h"
#include "engine/frontend.h"
#include "engine/output_stage.h"
#include "engine/step_executor.h"
#include "transfer/mover.h"

namespace hisparse::engine {

struct EngineConfig {
  CoreConfig core;
  std::int32_t max_live_requests = 256;  // running and queued; one more is RESOURCE_EXHAUSTED
  std::size_t output_capacity_bytes = 256 * 1024;  // unread text of one client
  // A step that takes longer counts as hung (/health and /ready turn 503): one prefill chunk of a
  // large model on a CPU may take minutes.
  std::chrono::nanoseconds hang_limit = std::chrono::minutes(10);
  base::Ledger planned;         // for the stats
  std::int64_t page_bytes = 0;  // over all ranks; for the stats
};

// Owns the engine thread, the output thread and the executor. Any thread; the destructor belongs to
// the main thread. Request handles must not outlive it.
class Engine final : public Frontend {
 public:
  // `persisted`: what an earlier process left on disk.
  Engine(const EngineConfig& config, std::unique_ptr<StepExecutor> executor,
         std::unique_ptr<transfer::Mover> mover, TokenBytes token_bytes,
         std::span<const kv::PersistedPage> persisted = {});
  // Ends what is still open (kAbort), waits for the step in flight, stops the threads.
  ~Engine() override;

  absl::StatusOr<RequestHandle> submit(Request request, std::function<void()> notify) override;
  std::shared_ptr<const EngineStats> stats() const override;
  Lifecycle lifecycle() const override { return lifecycle_.load(std::memory_order_acquire); }
  bool making_progress() const override;

 private:
  struct Submit {
    base::SequenceId id;
    Request request;
    std::shared_ptr<OutputChannel> output;
  };
  // Wakes the engine thread: there are wanted ends, or a page has been moved.
  struct Wake {};
  struct EndAll {
    absl::Status status;
  };
  // What somebody outside wants of a request that may have ended already.
  struct WantedEnd {
    base::SequenceId id;
    FinishReason reason;  // kAbort: the client is gone; kStop: a stop string matched
  };
  using Message = std::variant<Submit, Wake, EndAll, StepResult>;

  absl::Status refuse(Refusal why, absl::Status status);
  void post(Message message);
  void want_end(WantedEnd end);
  std::vector<WantedEnd> take_wanted_ends();
  void run();
  void turn(std::optional<Message> message);
  void handle(Message message);
  void take_step_result(const StepResult& result);
  void publish();

  const EngineConfig config_;
  base::SteadyClock clock_;
  std::atomic<Lifecycle> lifecycle_{Lifecycle::kReady};
  std::atomic<std::int64_t> next_id_{0};
  std::array<std::atomic<std::int64_t>, kRefusals> refused_{};
  std::atomic<base::Nanoseconds> last_progress_{0};
  std::atomic<bool> busy_{false};

  mutable std::mutex mutex_;
  std::int64_t live_ = 0;                     // submitted and not ended; guarded by mutex_
  std::shared_ptr<const EngineStats> stats_;  // guarded by mutex_
  // Not messages of their own: handles that are dropped late may be more than any queue holds.
  // Guarded by mutex_.
  std::vector<WantedEnd> wanted_ends_;

  base::BoundedQueue<Message> inbox_;
  std::unique_ptr<StepExecutor> executor_;
  std::unique_ptr<transfer::Mover> mover_;
  EngineCore core_;  // engine thread only
  std::unique_ptr<OutputStage> output_;
  std::thread thread_;
};

}  // namespace hisparse::engine
