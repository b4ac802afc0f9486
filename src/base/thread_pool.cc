#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"

namespace hisparse::base {

struct ThreadPool::Job {
  std::int64_t count;
  const std::function<void(std::int64_t)>* body;
  std::atomic<std::int64_t> next{0};
  std::atomic<std::int64_t> done{0};
  std::mutex mutex;
  std::condition_variable finished;
};

ThreadPool::ThreadPool(int threads) {
  HS_CHECK(threads >= 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { worker_loop(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_available_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run_chunks(Job& job) {
  for (;;) {
    const std::int64_t i = job.next.fetch_add(1, std::memory_order_relaxed);
    if (i >= job.count) return;
    (*job.body)(i);
    if (job.done.fetch_add(1, std::memory_order_acq_rel) + 1 == job.count) {
      // The lock pairs with the waiter's check, so the notification is not lost.
      std::lock_guard lock(job.mutex);
      job.finished.notify_all();
    }
  }
}

void ThreadPool::parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  if (count <= 0) return;
  if (count == 1 || workers_.empty()) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  auto job = std::make_shared<Job>();
  job->count = count;
  job->body = &body;
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(job);
  }
  work_available_.notify_all();
  run_chunks(*job);
  {
    // A worker that still holds the job only reads its exhausted counter.
    std::lock_guard lock(mutex_);
    std::erase(jobs_, job);
  }
  // The stragglers' last chunks are short: look a while before sleeping.
  constexpr int kSpins = 2000;
  for (int spin = 0; spin < kSpins; ++spin) {
    if (job->done.load(std::memory_order_acquire) == count) return;
  }
  std::unique_lock lock(job->mutex);
  job->finished.wait(lock, [&] { return job->done.load(std::memory_order_acquire) == count; });
}

void ThreadPool::worker_loop() {
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      work_available_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = jobs_.front();
    }
    run_chunks(*job);
    std::lock_guard lock(mutex_);
    std::erase(jobs_, job);
  }
}

}  // namespace hisparse::base
