// A mover for the simulator: copies take any time, come back in any order, fail, and are told
// twice.
#pragma once

#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/sim/paged_oracle.h"
#include "transfer/mover.h"

namespace hisparse::test {

class SimMover final : public transfer::Mover {
 public:
  SimMover(PagedOracle& device, std::mt19937_64& random) : device_(device), random_(random) {}

  void set_wake(std::function<void()> /*wake*/) override {}

  void submit(kv::TransferPlan plan) override {
    for (const base::SlotId slot : plan.forgotten) manifest_.erase(slot);
    for (auto* ops : {&plan.restores, &plan.demotions}) {
      // The real one writes there from now on, beside the step.
      for (const kv::TransferOp& op : *ops) {
        device_.poison(op.to);
        if (op.to.tier == kv::Tier::kDisk) manifest_.erase(op.to.slot);
      }
      pending_.insert(pending_.end(), ops->begin(), ops->end());
    }
  }

  std::vector<kv::TransferDone> drain() override {
    std::vector<kv::TransferDone> done;
    while (!pending_.empty() && below(3) != 0) {
      const auto at = static_cast<std::size_t>(below(pending_.size()));
      const kv::TransferOp op = pending_[at];
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(at));
      done.push_back({.id = op.id, .status = run(op)});
      if (below(10) == 0) done.push_back(done.back());
    }
    return done;
  }

  // The process dies: what is under way is lost. What the next one is told that the disk holds.
  std::vector<kv::PersistedPage> die() {
    pending_.clear();
    std::vector<kv::PersistedPage> pages;
    for (const auto& [slot, page] : manifest_) pages.push_back(page);
    return pages;
  }

  // The disk is full or broken: nothing can be written to it.
  void fail_disk(bool fails) { disk_fails_ = fails; }
  // No transfer fails by chance.
  void fail_none() { some_fail_ = false; }

  bool idle() const { return pending_.empty(); }
  std::int64_t copies() const { return copies_; }
  std::int64_t failures() const { return failures_; }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  absl::Status run(const kv::TransferOp& op) {
    const bool disk = op.to.tier == kv::Tier::kDisk;
    if ((disk && disk_fails_) || (below(30) == 0 && some_fail_)) {
      ++failures_;
      return absl::UnavailableError("the page cannot be written");
    }
    if (!device_.copy(op.from, op.to)) return absl::DataLossError("the page is not what it was");
    ++copies_;
    if (op.persisted) manifest_[op.to.slot] = *op.persisted;
    return absl::OkStatus();
  }

  PagedOracle& device_;
  std::mt19937_64& random_;
  std::vector<kv::TransferOp> pending_;
  std::map<base::SlotId, kv::PersistedPage> manifest_;
  bool disk_fails_ = false;
  bool some_fail_ = true;
  std::int64_t copies_ = 0;
  std::int64_t failures_ = 0;
};

}  // namespace hisparse::test
