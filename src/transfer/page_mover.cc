#include "transfer/page_mover.h"

#include <utility>

#include "base/check.h"
#include "transfer/page_copier.h"

namespace hisparse::transfer {
namespace {

// One waits for the disk while another copies or checks.
constexpr int kThreadsPerRank = 2;

}  // namespace

PageMover::PageMover(std::vector<RankMemory> ranks) {
  HS_CHECK(!ranks.empty());
  for (const RankMemory& memory : ranks) {
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->memory = memory;
  }
  for (const std::unique_ptr<Rank>& rank : ranks_) {
    for (int i = 0; i < kThreadsPerRank; ++i) {
      rank->threads.emplace_back([this, raw = rank.get()] { run(*raw); });
    }
  }
}

PageMover::~PageMover() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (const std::unique_ptr<Rank>& rank : ranks_) {
    for (std::thread& thread : rank->threads) thread.join();
  }
}

void PageMover::submit(kv::TransferPlan plan) {
  {
    std::lock_guard lock(mutex_);
    for (const std::unique_ptr<Rank>& rank : ranks_) {
      rank->restores.insert(rank->restores.end(), plan.restores.begin(), plan.restores.end());
      rank->demotions.insert(rank->demotions.end(), plan.demotions.begin(), plan.demotions.end());
    }
  }
  work_.notify_all();
}

std::vector<kv::TransferDone> PageMover::drain() {
  std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

void PageMover::run(Rank& rank) {
  PageCopier copier(rank.memory);
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock,
               [&] { return stopping_ || !rank.restores.empty() || !rank.demotions.empty(); });
    if (stopping_) return;
    std::deque<kv::TransferOp>& queue = rank.restores.empty() ? rank.demotions : rank.restores;
    const kv::TransferOp op = queue.front();
    queue.pop_front();
    lock.unlock();
    report(op, copier.copy(op.from, op.to));
    lock.lock();
  }
}

void PageMover::report(const kv::TransferOp& op, absl::Status status) {
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    Progress& progress = in_progress_[op.id];
    if (progress.status.ok() || absl::IsDataLoss(status)) progress.status = std::move(status);
    if (++progress.ranks < ranks_.size()) return;
    first = done_.empty();
    done_.push_back({.id = op.id, .status = std::move(progress.status)});
    in_progress_.erase(op.id);
  }
  if (first && wake_) wake_();
}

}  // namespace hisparse::transfer
