// One pool of compute threads for the whole process, shared by all ranks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hisparse::base {

// Owns `threads - 1` threads; the caller of parallel_for is the remaining one. Any thread may call
// parallel_for, several at once: each caller works on its own job until no chunk is left, so ranks
// that share the pool cannot deadlock. Work is handed out by a chunk counter, so a core that is
// taken away slows the job down and does not stop it. An idle thread looks for work for a moment,
// then sleeps. Destroy only when no job is running.
class ThreadPool {
 public:
  // At least one thread (the caller).
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) once for each i in [0, count), in any order, on any of the threads; returns when
  // all calls are done. The result may not depend on which thread runs which chunk. `body` must not
  // throw. Allocates nothing once as many jobs have run at a time as ever will.
  void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body);

 private:
  struct Job;
  void worker_loop();
  void look_for_work() const;
  void finish(Job& job);
  static void run_chunks(Job& job);

  std::mutex mutex_;
  std::condition_variable work_available_;
  std::condition_variable helper_left_;
  std::vector<Job*> jobs_;  // guarded by mutex_; on their callers' stacks
  int sleeping_ = 0;        // guarded by mutex_
  bool stopping_ = false;   // guarded by mutex_
  // Changes whenever a job is added: what an idle thread watches without the lock.
  std::atomic<std::uint64_t> jobs_added_{0};
  std::vector<std::thread> workers_;
};

}  // namespace hisparse::base
