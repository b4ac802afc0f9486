// The workers of all ranks and their threads.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bounded_queue.h"
#include "comm/communicator.h"
#include "engine/step_executor.h"
#include "engine/worker.h"

namespace hisparse::engine {

// Owns one thread, one device and one worker per rank. submit() from the engine thread; everything
// else from the thread that made it. Destroy when no step is in flight.
class WorkerGroup final : public StepExecutor {
 public:
  struct Options {
    WorkerOptions worker;
    std::int32_t ranks = 1;
    // Makes the device of a rank.
    std::function<absl::StatusOr<std::unique_ptr<device::Device>>(std::int32_t rank)> make_device;
  };

  // Loads the model on all ranks at once, each on its own thread. Checkpoint and spec are not
  // needed afterwards. After the first error the other ranks finish loading, and that error is
  // returned.
  static absl::StatusOr<std::unique_ptr<WorkerGroup>> start(const format::Checkpoint& checkpoint,
                                                            const model::ModelSpec& spec,
                                                            const Options& options,
                                                            const model::LoadProgress& progress);
  ~WorkerGroup() override;

  void set_done(StepDone done) override { done_ = std::move(done); }
  void submit(std::shared_ptr<const sched::StepPlan> plan) override;

  base::Ledger allocated() const override;
  std::string isa_level() const;
  // Where the pages of each rank lie; for the movers, which must be gone before the group.
  std::vector<transfer::RankMemory> memories() const;

 private:
  struct Rank {
    std::unique_ptr<device::Device> device;
    std::unique_ptr<comm::Communicator> communicator;
    std::unique_ptr<Worker> worker;
    std::unique_ptr<base::BoundedQueue<std::shared_ptr<const sched::StepPlan>>> plans;
    std::thread thread;
  };

  WorkerGroup() = default;
  void run_rank(std::size_t rank);
  void report(std::size_t rank, StepResult result);

  std::vector<Rank> ranks_;
  StepDone done_;
  std::mutex mutex_;
  std::size_t reports_ = 0;  // of the step that runs, guarded by mutex_
  StepResult joined_;        // guarded by mutex_
};

}  // namespace hisparse::engine
