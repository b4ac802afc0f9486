#include "transfer/page_mover.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace hisparse::transfer {

absl::StatusOr<std::unique_ptr<PageMover>> PageMover::create(const std::vector<RankMemory>& ranks,
                                                             PageStore* store) {
  HS_CHECK(!ranks.empty());
  std::unique_ptr<PageMover> mover(new PageMover(store));
  for (const RankMemory& memory : ranks) {
    Rank& rank = *mover->ranks_.emplace_back(std::make_unique<Rank>());
    for (int i = 0; i < kThreadsPerRank; ++i) {
      HS_ASSIGN_OR_RETURN(rank.copiers.emplace_back(), PageCopier::create(memory));
    }
  }
  for (const std::unique_ptr<Rank>& rank : mover->ranks_) {
    for (const std::unique_ptr<PageCopier>& copier : rank->copiers) {
      rank->threads.emplace_back(
          [raw = mover.get(), part = rank.get(), own = copier.get()] { raw->run(*part, *own); });
    }
  }
  return mover;
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
  if (store_ != nullptr) {
    for (const base::SlotId slot : plan.forgotten) store_->forget(slot);
  }
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

void PageMover::run(Rank& rank, PageCopier& copier) {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock,
               [&] { return stopping_ || !rank.restores.empty() || !rank.demotions.empty(); });
    if (stopping_) return;
    std::deque<kv::TransferOp>& queue = rank.restores.empty() ? rank.demotions : rank.restores;
    const kv::TransferOp op = queue.front();
    queue.pop_front();
    lock.unlock();
    // Before the first rank writes there: whoever starts next must not take the slot for what it
    // was.
    if (store_ != nullptr && op.to.tier == kv::Tier::kDisk) store_->forget(op.to.slot);
    report(op, copier.copy(op.from, op.to, kv::write_number(op.id)));
    lock.lock();
  }
}

void PageMover::report(const kv::TransferOp& op, absl::Status status) {
  absl::Status worst;
  {
    std::lock_guard lock(mutex_);
    Progress& progress = in_progress_[op.id];
    if (progress.status.ok() || absl::IsDataLoss(status)) progress.status = std::move(status);
    if (++progress.ranks < ranks_.size()) return;
    worst = std::move(progress.status);
    in_progress_.erase(op.id);
  }
  // Before the controller hears of it: the slot may be used for something else then.
  if (store_ != nullptr && op.persisted && worst.ok()) store_->keep(*op.persisted);
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    first = done_.empty();
    done_.push_back({.id = op.id, .status = std::move(worst)});
  }
  if (first && wake_) wake_();
}

}  // namespace hisparse::transfer
