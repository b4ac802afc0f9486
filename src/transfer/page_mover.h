// The production mover: threads that copy pages between the tiers of all ranks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "transfer/mover.h"
#include "transfer/page_copier.h"
#include "transfer/page_store.h"
#include "transfer/rank_memory.h"

namespace hisparse::transfer {

// Owns a few threads for each rank. An op is done when every rank has done it; when one fails, the
// op has failed with the worst status (data loss, if there is any). Ops that are queued when it is
// destroyed are dropped; those under way are finished.
class PageMover final : public Mover {
 public:
  // What the ranks' memories name must outlive it, and so must the store that is told what the disk
  // holds (null: nothing is kept). ResourceExhausted when there is no room for its staging.
  static absl::StatusOr<std::unique_ptr<PageMover>> create(const std::vector<RankMemory>& ranks,
                                                           PageStore* store = nullptr);
  ~PageMover() override;

  // One waits for the disk while another copies or checks. With a disk tier each has a page of
  // staging (PageCopier::staging_bytes).
  static constexpr int kThreadsPerRank = 2;

  void set_wake(std::function<void()> wake) override { wake_ = std::move(wake); }
  void submit(kv::TransferPlan plan) override;
  std::vector<kv::TransferDone> drain() override;

 private:
  struct Rank {
    std::deque<kv::TransferOp> restores;   // guarded by mutex_
    std::deque<kv::TransferOp> demotions;  // guarded by mutex_
    std::vector<std::unique_ptr<PageCopier>> copiers;
    std::vector<std::thread> threads;
  };
  struct Progress {
    std::size_t ranks = 0;  // that have done their part
    absl::Status status;
  };

  explicit PageMover(PageStore* store) : store_(store) {}
  void run(Rank& rank, PageCopier& copier);
  void report(const kv::TransferOp& op, absl::Status status);

  PageStore* const store_;
  std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable work_;
  bool stopping_ = false;                                       // guarded by mutex_
  std::unordered_map<base::TransferId, Progress> in_progress_;  // guarded by mutex_
  std::vector<kv::TransferDone> done_;                          // guarded by mutex_
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace hisparse::transfer
