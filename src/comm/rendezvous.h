// Where the ranks of one process meet.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "device/operators.h"

namespace hisparse::comm {

// A reusable barrier with two gates around a *shared section*, in which ranks may touch each
// other's buffers. enter() waits until all are there, and can be aborted; leave() waits until all
// have finished, and cannot: once inside nobody blocks, and a rank that left early could free a
// buffer that another one still reads. Ranks sleep while they wait. Any thread, one per rank.
class Rendezvous final {
 public:
  explicit Rendezvous(int ranks) : ranks_(ranks) {}

  // Hands in this rank's address. False when the group is aborted: the rank must not go on, nor
  // call leave().
  [[nodiscard]] bool enter(int rank, std::uint64_t address) {
    std::unique_lock lock(mutex_);
    if (!status_.ok()) return false;
    addresses_[static_cast<std::size_t>(rank)] = address;
    const std::uint64_t round = round_;
    if (++arrived_ == ranks_) {
      arrived_ = 0;
      inside_ = ranks_;
      ++round_;
      changed_.notify_all();
      return true;
    }
    changed_.wait(lock, [&] { return round_ != round || !status_.ok(); });
    return round_ != round;
  }

  // What `rank` handed in; inside the shared section only.
  std::uint64_t address(int rank) const { return addresses_[static_cast<std::size_t>(rank)]; }

  void leave() {
    std::unique_lock lock(mutex_);
    const std::uint64_t left = left_;
    if (--inside_ == 0) {
      ++left_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return left_ != left; });
  }

  // The first reason stays.
  void abort(absl::Status reason) {
    {
      std::lock_guard lock(mutex_);
      if (!status_.ok()) return;
      status_ = reason.ok() ? absl::AbortedError("aborted") : std::move(reason);
    }
    changed_.notify_all();
  }

  absl::Status status() const {
    std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  const int ranks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_; the addresses are also read inside the shared section, where nobody
  // writes them.
  std::array<std::uint64_t, device::kMaxRanks> addresses_{};
  int arrived_ = 0;
  int inside_ = 0;
  std::uint64_t round_ = 0;
  std::uint64_t left_ = 0;
  absl::Status status_;
};

}  // namespace hisparse::comm
