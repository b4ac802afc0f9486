#include "base/thread_pool.h"

#include <algorithm>

#include "base/check.h"

namespace hisparse::base {
namespace {

// Longer than what usually lies between two operators of a step: some fifty microseconds.
constexpr int kIdleSpins = 1000;
// The stragglers' last chunks are short: look a while before sleeping.
constexpr int kFinishSpins = 1000;
// A share that no job is large enough for must still learn the number before the difference is too
// large to be told from a negative one.
constexpr std::uint32_t kCloseSharesEvery = 1u << 20;

// Of what every call reads: lines that a core asks for at once, and that stay in its L1 cache.
constexpr std::size_t kFetchedBytes = 8192;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits a little. After the time that threads usually wait for each other, whoever else wants this
// core may have it: on a machine that is shared, that may be a thread of this very pool.
void relax(int spin) {
  constexpr int kAlone = 64;
  constexpr int kYieldEvery = 16;
  if (spin > kAlone && spin % kYieldEvery == 0) {
    std::this_thread::yield();
  } else {
    pause();
  }
}

}  // namespace

// How the indices of a job are cut: into chunks of `size`, and those into shares.
struct ThreadPool::Chunks {
  std::int64_t threads = 0;
  std::int64_t size = 0;
  std::int64_t count = 0;

  Chunks(std::int64_t indices, std::size_t all_threads)
      : threads(static_cast<std::int64_t>(all_threads)) {
    size = (indices + ChunkShare::kMaxChunks - 1) / ChunkShare::kMaxChunks;
    count = (indices + size - 1) / size;
  }
  // What thread `thread` begins with. The first ones have one more where it does not come out even.
  ChunkRange share_of(std::int64_t thread) const {
    return {.begin = first_of(thread), .end = first_of(thread + 1)};
  }
  void run(const Job& job, std::int64_t chunk) const {
    const std::int64_t end = std::min(job.count, (chunk + 1) * size);
    for (std::int64_t i = chunk * size; i < end; ++i) job.call(job.body, i);
  }

 private:
  std::int64_t first_of(std::int64_t thread) const {
    return thread * (count / threads) + std::min(thread, count % threads);
  }
};

ThreadPool::ThreadPool(int threads) {
  HS_CHECK(threads >= 1);
  for (Slot& slot : slots_) {
    slot.shares = std::vector<ChunkShare>(static_cast<std::size_t>(threads));
    for (ChunkShare& share : slot.shares) share.close(kFirstNumber);
  }
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker_loop(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_available_.notify_all();
  for (auto& worker : workers_) worker.join();
  for (const Slot& slot : slots_) HS_CHECK(!slot.taken);
}

void ThreadPool::run(const Job& job) {
  Slot* slot = job.count > 1 && !workers_.empty() ? take_slot() : nullptr;
  if (slot == nullptr) {
    for (std::int64_t i = 0; i < job.count; ++i) job.call(job.body, i);
    return;
  }
  const Chunks chunks(job.count, slot->shares.size());
  const std::uint32_t number = publish(*slot, job, chunks);
  if (sleeping_.load(std::memory_order_relaxed) > 0) wake_workers();
  chunks.run(job, 0);
  // Whoever has fallen asleep meanwhile without seeing the job is woken here: to make sure of that
  // already when the job is published, the caller would have to wait until all cores have seen it.
  if (sleeping_.fetch_add(0) > 0) wake_workers();
  const std::int64_t done = 1 + work_on(*slot, number, job, 0);
  wait_for_helpers(*slot, number, chunks.count - done);
  slot->taken.store(false, std::memory_order_release);
}

ThreadPool::Slot* ThreadPool::take_slot() {
  for (Slot& slot : slots_) {
    if (!slot.taken.load(std::memory_order_relaxed) &&
        !slot.taken.exchange(true, std::memory_order_acquire)) {
      return &slot;
    }
  }
  return nullptr;
}

// Workers read the description at any time: they see by the number whether it held still. The first
// chunk is the caller's.
std::uint32_t ThreadPool::publish(Slot& slot, const Job& job, const Chunks& chunks) {
  const std::uint32_t number = slot.number.load(std::memory_order_relaxed) + 2;
  if (number % kCloseSharesEvery == 0) {
    for (ChunkShare& share : slot.shares) share.close(number - 2);
  }
  slot.number.store(number - 1, std::memory_order_relaxed);
  slot.call.store(job.call, std::memory_order_release);
  slot.body.store(job.body, std::memory_order_release);
  slot.body_bytes.store(static_cast<std::uint32_t>(job.body_bytes), std::memory_order_release);
  slot.read_by_all.store(job.read_by_all.data(), std::memory_order_release);
  slot.read_bytes.store(static_cast<std::uint32_t>(std::min(job.read_by_all.size(), kFetchedBytes)),
                        std::memory_order_release);
  slot.count.store(job.count, std::memory_order_release);
  ChunkRange own = chunks.share_of(0);
  ++own.begin;
  slot.shares[0].refill(number, own);
  slot.number.store(number, std::memory_order_release);
  return number;
}

void ThreadPool::wake_workers() {
  { std::lock_guard lock(mutex_); }
  work_available_.notify_all();
}

// Returns how many chunks it has done. The caller is told as soon as a share is done, before
// looking for more: it may be the last.
std::int64_t ThreadPool::work_on(Slot& slot, std::uint32_t number, const Job& job, int thread) {
  const Chunks chunks(job.count, slot.shares.size());
  ChunkShare& own = slot.shares[static_cast<std::size_t>(thread)];
  std::int64_t done = 0;
  const ChunkRange first = chunks.share_of(thread);
  std::int64_t chunk = own.take(number, first);
  do {
    const std::int64_t before = done;
    for (; chunk != ChunkShare::kNone; chunk = own.take(number, first), ++done) {
      chunks.run(job, chunk);
    }
    if (thread != 0 && done > before) tell_caller(slot, number, thread, done);
    chunk = steal(slot, number, chunks, thread);
  } while (chunk != ChunkShare::kNone);
  return done;
}

void ThreadPool::tell_caller(Slot& slot, std::uint32_t number, int thread, std::int64_t done) {
  slot.shares[static_cast<std::size_t>(thread)].tell_done(number, done);
  if (slot.caller_sleeps.load()) {
    { std::lock_guard lock(mutex_); }
    helper_done_.notify_all();
  }
}

// Returns a chunk, or kNone. What is stolen with it is the thread's share from now on.
std::int64_t ThreadPool::steal(Slot& slot, std::uint32_t number, const Chunks& chunks, int thread) {
  for (std::int64_t offset = 1; offset < chunks.threads; ++offset) {
    const std::int64_t owner = (thread + offset) % chunks.threads;
    ChunkShare& share = slot.shares[static_cast<std::size_t>(owner)];
    ChunkRange stolen = share.steal(number, chunks.share_of(owner));
    if (stolen.empty()) continue;
    const std::int64_t chunk = stolen.begin++;
    if (!stolen.empty()) slot.shares[static_cast<std::size_t>(thread)].refill(number, stolen);
    return chunk;
  }
  return ChunkShare::kNone;
}

void ThreadPool::wait_for_helpers(Slot& slot, std::uint32_t number,
                                  std::int64_t chunks_of_helpers) {
  const auto all_done = [&] {
    std::int64_t done = 0;
    for (const ChunkShare& share : slot.shares) done += share.done(number);
    return done == chunks_of_helpers;
  };
  for (int spin = 0; spin < kFinishSpins; ++spin) {
    if (all_done()) return;
    relax(spin);
  }
  std::unique_lock lock(mutex_);
  slot.caller_sleeps.store(true);
  helper_done_.wait(lock, all_done);
  slot.caller_sleeps.store(false);
}

void ThreadPool::worker_loop(int thread) {
  Seen seen;
  seen.fill(kFirstNumber);
  int spins = 0;
  for (;;) {
    if (help(thread, seen)) {
      spins = 0;
    } else if (++spins < kIdleSpins) {
      relax(spins);
    } else if (sleep(seen)) {
      spins = 0;  // the job that woke it may be over, and the next one follows
    } else {
      return;
    }
  }
}

// False if there is nothing new.
bool ThreadPool::help(int thread, Seen& seen) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const std::uint32_t number = slot.number.load(std::memory_order_acquire);
    if (number == seen[i] || number % 2 != 0) continue;
    const Job job = {.call = slot.call.load(std::memory_order_acquire),
                     .body = slot.body.load(std::memory_order_acquire),
                     .body_bytes = slot.body_bytes.load(std::memory_order_acquire),
                     .count = slot.count.load(std::memory_order_acquire),
                     .read_by_all = {slot.read_by_all.load(std::memory_order_acquire),
                                     slot.read_bytes.load(std::memory_order_acquire)}};
    if (slot.number.load(std::memory_order_relaxed) != number) continue;
    seen[i] = number;
    // The job may be over, and `body` gone: fetching harms nobody, and nothing is called without a
    // chunk.
    fetch_lines(job.body, job.body_bytes);
    fetch_lines(job.read_by_all.data(), job.read_by_all.size());
    if (work_on(slot, number, job, thread) > 0) return true;
  }
  return false;
}

bool ThreadPool::has_news(const Seen& seen) const {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::uint32_t number = slots_[i].number.load();
    if (number != seen[i] && number % 2 == 0) return true;
  }
  return false;
}

// Until there is something to do: true. False when the pool is destroyed.
bool ThreadPool::sleep(const Seen& seen) {
  std::unique_lock lock(mutex_);
  sleeping_.fetch_add(1);
  work_available_.wait(lock, [&] { return stopping_ || has_news(seen); });
  sleeping_.fetch_sub(1);
  return !stopping_;
}

}  // namespace hisparse::base
