// One pool of compute threads for the whole process, shared by all ranks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace hisparse::base {

// Owns `threads - 1` threads; the caller of parallel_for is the remaining one. Any thread may call
// parallel_for, several at once: each caller works on its own job until no chunk is left, so ranks that
// share the pool cannot deadlock. Work is handed out by a chunk counter, so a core that is taken away
// slows the job down and does not stop it. Destroy only when no job is running.
class ThreadPool {
 public:
  // At least one thread (the caller).
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) once for each i in [0, count), in any order, on any of the threads; returns when all
  // calls are done. The result may not depend on which thread runs which chunk. `body` must not throw.
  void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body);

 private:
  struct Job;
  void worker_loop();
  static void run_chunks(Job& job);

  std::mutex mutex_;
  std::condition_variable work_available_;
  std::vector<std::shared_ptr<Job>> jobs_;  // guarded by mutex_
  bool stopping_ = false;                   // guarded by mutex_
  std::vector<std::thread> workers_;
};

}  // namespace hisparse::base
