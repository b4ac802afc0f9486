#include "base/thread_pool.h"

#include <algorithm>

#include "base/check.h"

namespace hisparse::base {
namespace {

// About twenty microseconds: the usual time between two operators of a step.
constexpr int kIdleSpins = 1000;
// The stragglers' last chunks are short: look a while before sleeping.
constexpr int kFinishSpins = 1000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// Lives on the caller's stack: helpers enter and leave under the pool's mutex, and the caller waits
// until they have left.
struct ThreadPool::Job {
  std::int64_t count = 0;
  const std::function<void(std::int64_t)>* body = nullptr;
  std::atomic<std::int64_t> next{0};
  std::atomic<int> helpers{0};  // written under the pool's mutex
};

ThreadPool::ThreadPool(int threads) {
  HS_CHECK(threads >= 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { worker_loop(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    HS_CHECK(jobs_.empty());
    stopping_ = true;
    jobs_added_.fetch_add(1, std::memory_order_release);
  }
  work_available_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run_chunks(Job& job) {
  for (;;) {
    const std::int64_t i = job.next.fetch_add(1, std::memory_order_relaxed);
    if (i >= job.count) return;
    (*job.body)(i);
  }
}

void ThreadPool::parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  if (count <= 0) return;
  if (count == 1 || workers_.empty()) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  Job job;
  job.count = count;
  job.body = &body;
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(&job);
    jobs_added_.fetch_add(1, std::memory_order_release);
    wake = sleeping_ > 0;
  }
  if (wake) work_available_.notify_all();
  run_chunks(job);
  finish(job);
}

void ThreadPool::finish(Job& job) {
  {
    // From here on no further helper finds the job.
    std::lock_guard lock(mutex_);
    std::erase(jobs_, &job);
  }
  for (int spin = 0; spin < kFinishSpins; ++spin) {
    // The helper's last access to the job is this counter, and it left its results before.
    if (job.helpers.load(std::memory_order_acquire) == 0) return;
    pause();
  }
  std::unique_lock lock(mutex_);
  helper_left_.wait(lock, [&] { return job.helpers.load(std::memory_order_acquire) == 0; });
}

void ThreadPool::look_for_work() const {
  const std::uint64_t seen = jobs_added_.load(std::memory_order_acquire);
  for (int spin = 0; spin < kIdleSpins; ++spin) {
    if (jobs_added_.load(std::memory_order_acquire) != seen) return;
    pause();
  }
}

void ThreadPool::worker_loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (jobs_.empty()) {
      lock.unlock();
      look_for_work();
      lock.lock();
      ++sleeping_;
      work_available_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      --sleeping_;
      continue;
    }
    Job* job = jobs_.front();
    job->helpers.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();
    run_chunks(*job);
    lock.lock();
    // No chunk is left: nobody else needs to find it. Its caller erases it too, which then does
    // nothing; `job` may be gone as soon as the last helper has left.
    std::erase(jobs_, job);
    if (job->helpers.fetch_sub(1, std::memory_order_acq_rel) == 1) helper_left_.notify_all();
  }
}

}  // namespace hisparse::base
