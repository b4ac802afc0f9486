// Streams and events of the CPU backend: immediate, or deferred and out of step.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/device.h"

namespace hisparse::device::cpu {

class StreamQueue;

// One queue of the StreamQueue below; its fields are guarded by that one's mutex. Destroy when
// synchronised: work that is still queued is an error of ours.
class CpuStream final : public Stream {
 public:
  explicit CpuStream(StreamQueue* queue) : queue_(queue) {}
  ~CpuStream() override;

 private:
  friend class StreamQueue;
  // Exactly one of the three is set.
  struct Entry {
    std::function<void()> work;
    std::uint64_t reaches = 0;
    std::uint64_t awaits = 0;
  };

  StreamQueue* const queue_;
  std::deque<Entry> entries_;
  bool running_ = false;
  std::thread::id runner_;
};

// Runs the work of all streams of one device. Immediate: on the calling thread, at once; every
// event is then reached as soon as it exists. Deferred: work waits in its stream and runs on the
// thread that synchronises or queries, one entry at a time, from a stream drawn at random among
// those that may go on. Any thread; no lock is held while work runs, so it may block on other
// streams or, in a collective, on other ranks.
class StreamQueue final {
 public:
  StreamQueue(StreamMode mode, std::uint64_t chaos_seed) : mode_(mode), seed_(chaos_seed) {}

  std::unique_ptr<Stream> create_stream();

  // `work` is any callable; it is copied only when deferred, so immediate work allocates nothing.
  template <typename Work>
  void enqueue(Stream& stream, Work&& work) {
    if (mode_ == StreamMode::kImmediate) {
      work();
    } else {
      push(stream, {.work = std::forward<Work>(work)});
    }
  }

  Event record(Stream& stream);
  void wait(Stream& stream, Event event);
  // Runs a few entries (a random number, maybe none) before it answers, when deferred.
  bool query(Event event);
  void synchronize(Event event);

 private:
  friend class CpuStream;
  // kBusy: only other threads' work stands in the way. kStuck: nothing can ever go on.
  enum class Step { kRan, kBusy, kStuck };

  void push(Stream& stream, CpuStream::Entry entry);
  void forget(CpuStream& stream);
  bool reached_locked(std::uint64_t ticket) const { return !pending_.contains(ticket); }
  bool runnable_locked(const CpuStream& stream) const;
  Step step_locked(std::unique_lock<std::mutex>& lock);
  std::uint64_t random_locked(std::uint64_t bound);

  const StreamMode mode_;
  const std::uint64_t seed_;
  std::mutex mutex_;
  std::condition_variable progress_;
  // All guarded by mutex_.
  std::vector<CpuStream*> streams_;
  std::set<std::uint64_t> pending_;  // recorded, not reached
  std::uint64_t last_ticket_ = 0;
  std::uint64_t draws_ = 0;
};

}  // namespace hisparse::device::cpu
