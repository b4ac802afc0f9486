// One rank: its device, its part of the model, its KV slab and block table, and the thread that
// runs steps.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bounded_queue.h"
#include "base/ledger.h"
#include "comm/communicator.h"
#include "engine/kv_injector.h"
#include "engine/page_observer.h"
#include "engine/page_stream.h"
#include "engine/step_executor.h"
#include "kv/cache_group.h"
#include "model/rank_model.h"
#include "transfer/disk_pool.h"
#include "transfer/rank_memory.h"

namespace hisparse::engine {

// kPoison: the pages that a plan names as freed are filled with NaN before anything is written to
// them, and those on disk count as never written, so that a read of a stale page shows (tests).
enum class FreedPages : std::uint8_t { kLeave, kPoison };

// Sees the logits of each sampled row of a step, on the worker thread of rank 0 (tests: bits say
// more than tokens).
using LogitsObserver = std::function<void(const sched::StepPlan& plan,
                                          std::span<const float> logits)>;  // [samples, vocabulary]

// kKept: the file of pages has a name and outlives the process (transfer/page_store.h).
enum class DiskFiles : std::uint8_t { kScratch, kKept };

struct WorkerOptions {
  model::ModelOptions model;
  std::int32_t page_tokens = 0;
  std::int32_t resident_slots = 0;  // pages in the slab
  std::int32_t host_slots = 0;      // pages in host memory
  std::int32_t disk_slots = 0;      // pages on disk ...
  std::string disk_folder;          // ... in a file there
  DiskFiles disk_files = DiskFiles::kScratch;
  base::DiskIo disk_io = base::DiskIo::kAuto;
  std::int64_t stream_half_bytes = PageStream::kDefaultHalfBytes;
  std::int32_t max_sequences = 0;       // rows of the block table
  std::int64_t pages_per_sequence = 0;  // its columns
  std::int32_t observed_rows = 0;       // StepPlan::observations at the most; rank 0 answers
  FreedPages freed_pages = FreedPages::kLeave;
  LogitsObserver observe_logits;  // empty: none
  KvSource* kv_source = nullptr;  // of the rows that plans call injected
};

// Bytes by owner that one worker will allocate on its device.
base::Ledger plan_worker_memory(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                                const WorkerOptions& options, const model::Shard& shard,
                                const model::WeightBytes& weight_bytes);

// Owns the rank's model, slab, block table and staging. Everything after create() happens on one
// thread (run() is not thread-safe). Device and communicator outlive it.
class Worker {
 public:
  // Loads the weights: slow. run() may later be called from another thread.
  static absl::StatusOr<std::unique_ptr<Worker>> create(const format::Checkpoint& checkpoint,
                                                        const model::ModelSpec& spec,
                                                        const WorkerOptions& options,
                                                        const model::RankModel::Context& context,
                                                        const model::LoadProgress& progress);

  // Runs one step to its end. Only rank 0 samples; the tokens of the others are empty.
  StepResult run(const sched::StepPlan& plan);

  // Where this rank's pages lie; for the movers.
  transfer::RankMemory memory() const;

 private:
  // What the device reads and writes in one step, without the rows that are injected. Two of them,
  // used in turn: one is rewritten only after the event behind its last use.
  struct PhaseSlot {
    std::vector<base::TokenId> tokens;
    std::vector<std::int32_t> sequence_slots;
    std::vector<std::int64_t> positions;
    std::vector<std::int32_t> last_rows;  // [StepPlan::rows]: index of the last computed row
    std::vector<std::int32_t> logit_rows;
    std::vector<device::SampleRow> samples;
    std::vector<std::uint64_t> table_entries;
    std::vector<base::TokenId> sampled;
    device::Buffer device_tokens;          // [max_rows]
    device::Buffer device_sequence_slots;  // [max_rows]
    device::Buffer device_positions;       // [max_rows]
    device::Buffer device_logit_rows;      // [max_logit_rows]
    device::Buffer device_samples;         // [max_logit_rows]
    device::Buffer device_sampled;         // [max_logit_rows]
    device::Event done;
  };
  static constexpr std::size_t kPhaseSlots = 2;

  Worker(const WorkerOptions& options, const model::RankModel::Context& context,
         const kv::PageLayout& layout);
  absl::Status allocate();
  absl::Status allocate_tiers();
  void make_injector(const model::ModelSpec& spec, const model::Shard& shard);
  transfer::PageShape page_shape() const;
  std::vector<SpilledPage> pages_on_disk(const sched::StepPlan& plan) const;
  void forward(const sched::StepPlan& plan, const PhaseSlot& phase, model::PageWindows* windows);
  bool observes(const sched::StepPlan& plan) const;
  void note_reads(const sched::StepPlan& plan, StepResult& result);
  void poison_freed(const sched::StepPlan& plan);
  void update_block_table(const sched::StepPlan& plan, PhaseSlot& phase);
  void stage_rows(const sched::StepPlan& plan, PhaseSlot& phase);
  void stage_samples(const sched::StepPlan& plan, PhaseSlot& phase);
  void sample(PhaseSlot& phase);
  void show_logits(const sched::StepPlan& plan);
  std::uint64_t page_address(const kv::Location& location) const;

  WorkerOptions options_;
  device::Device& device_;
  comm::Communicator& communicator_;
  kv::PageLayout layout_;
  model::PageGeometry geometry_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<model::RankModel> model_;
  std::int32_t vocabulary_ = 0;
  device::Buffer slab_;      // [resident_slots] pages
  device::HostBuffer host_;  // [host_slots] pages
  std::unique_ptr<transfer::DiskPool> disk_;
  std::unique_ptr<PageStream> page_stream_;
  std::unique_ptr<PageObserver> page_observer_;  // of rank 0, if anything is observed
  std::unique_ptr<KvInjector> injector_;         // null: every row is computed
  // Pages of each row of the block table that are on disk. What is behind the sequence's last page
  // is left over from another one.
  std::vector<std::map<std::int32_t, base::SlotId>> on_disk_;  // [sequence slot]
  device::Buffer block_table_;  // [max_sequences, pages_per_sequence] page addresses
  std::array<PhaseSlot, kPhaseSlots> phases_;
  Streamed streamed_;
};

}  // namespace hisparse::engine
