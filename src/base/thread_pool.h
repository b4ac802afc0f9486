// One pool of compute threads for the whole process, shared by all ranks.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/cache_line.h"
#include "base/chunk_share.h"

namespace hisparse::base {

// Owns `threads - 1` threads; the caller of parallel_for is the remaining one. Any thread may call
// parallel_for, several at once: each caller works on its own job until no chunk is left, so ranks
// that share the pool cannot deadlock.
//
// Each thread begins with an equal share of neighbouring chunks, the caller with the first, and
// then takes the back half of what another one has left: memory is read in long runs, and a core
// that is taken away slows the job down and does not stop it. Cores may be far from each other (a
// cache line takes 300 ns from one to the other where 60 ns are usual), so a job moves few lines:
// one with its description, and one for each thread that helps. An idle thread looks for work for a
// moment, during which others may have its core, then sleeps. Destroy only when no job is running.
class ThreadPool {
 public:
  // At least one thread (the caller).
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) once for each i in [0, count), in any order, on any of the threads; returns when
  // all calls are done. Call 0 may run to its end before any other thread is told. The result may
  // not depend on which thread runs which chunk. `body` must not throw. Allocates nothing.
  // `read_by_all`: what every call is going to read; a helper fetches its first few KiB before it
  // begins, all lines at once.
  template <typename Body>
  void parallel_for(std::int64_t count, const Body& body,
                    std::span<const std::byte> read_by_all = {}) {
    run({.call = [](const void* with, std::int64_t i) { (*static_cast<const Body*>(with))(i); },
         .body = &body,
         .body_bytes = sizeof(Body),
         .count = count,
         .read_by_all = read_by_all});
  }

 private:
  struct Job {
    void (*call)(const void* body, std::int64_t i) = nullptr;
    const void* body = nullptr;
    std::size_t body_bytes = 0;
    std::int64_t count = 0;
    std::span<const std::byte> read_by_all;
  };

  static constexpr int kSlots = 16;
  // Numbers wrap around before long: so that this is nothing rare.
  static constexpr std::uint32_t kFirstNumber = 0u - 8192;

  // Where a job is published; used for one job after the other. More callers than slots work alone.
  struct alignas(kCacheLine) Slot {
    // The number of the job, even; odd while the next one is being written.
    std::atomic<std::uint32_t> number{kFirstNumber};
    std::atomic<bool> caller_sleeps{false};
    std::atomic<decltype(Job::call)> call{nullptr};
    std::atomic<const void*> body{nullptr};
    std::atomic<std::uint32_t> body_bytes{0};
    std::atomic<std::uint32_t> read_bytes{0};
    std::atomic<const std::byte*> read_by_all{nullptr};
    std::atomic<std::int64_t> count{0};

    alignas(kCacheLine) std::atomic<bool> taken{false};  // by a caller
    // Of the caller, and of each worker. Not on a line that the caller writes.
    alignas(kCacheLine) std::vector<ChunkShare> shares;
  };
  using Seen = std::array<std::uint32_t, kSlots>;  // the last job that a worker has looked at

  void run(const Job& job);
  Slot* take_slot();
  struct Chunks;
  std::uint32_t publish(Slot& slot, const Job& job, const Chunks& chunks);
  void wake_workers();
  std::int64_t work_on(Slot& slot, std::uint32_t number, const Job& job, int thread);
  void tell_caller(Slot& slot, std::uint32_t number, int thread, std::int64_t done);
  static std::int64_t steal(Slot& slot, std::uint32_t number, const Chunks& chunks, int thread);
  void wait_for_helpers(Slot& slot, std::uint32_t number, std::int64_t chunks_of_helpers);

  void worker_loop(int thread);
  bool help(int thread, Seen& seen);
  bool has_news(const Seen& seen) const;
  bool sleep(const Seen& seen);

  std::array<Slot, kSlots> slots_;
  std::atomic<int> sleeping_{0};
  std::mutex mutex_;  // orders sleeping and waking
  std::condition_variable work_available_;
  std::condition_variable helper_done_;
  bool stopping_ = false;  // guarded by mutex_
  std::vector<std::thread> workers_;
};

}  // namespace hisparse::base
