// The chunks of a job that one thread of a pool begins with, and what it has done of the whole job.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/cache_line.h"

namespace hisparse::base {

// Its owner takes chunks from the front, in order; other threads take from the back once their own
// shares are empty. Nobody has to reset it: it knows by the job's number that its chunks are all
// there again. Any thread may call everything, also with the number of a job that is over. Numbers
// grow, and may wrap around.
class alignas(kCacheLine) ChunkShare {
 public:
  static constexpr std::int64_t kMaxChunks = 0xFFFF;
  static constexpr std::int64_t kNone = -1;

  // A chunk of [0, size) that nobody has taken yet, or kNone.
  std::int64_t take_front(std::uint32_t job, std::int64_t size) {
    Taken now;
    return take(job, size, &Taken::front, now) ? now.front - 1 : kNone;
  }
  std::int64_t take_back(std::uint32_t job, std::int64_t size) {
    Taken now;
    return take(job, size, &Taken::back, now) ? size - now.back : kNone;
  }

  // The owner has done `chunks` of the job, of this share or of others. Once for each job at most.
  void leave(std::uint32_t job, std::int64_t chunks) {
    done_.store({.job = job, .chunks = static_cast<std::uint32_t>(chunks)});
  }
  // What the owner said of this job; until then 0.
  std::int64_t done(std::uint32_t job) const {
    const Done done = done_.load();
    return done.job == job ? done.chunks : 0;
  }

  // No chunk of this job is left, nor of those before it.
  void close(std::uint32_t job) {
    taken_.store({.job = job, .front = kMaxChunks, .back = 0});
    done_.store({.job = job, .chunks = 0});
  }

 private:
  struct Taken {
    std::uint32_t job = 0;
    std::uint16_t front = 0;
    std::uint16_t back = 0;
  };
  struct Done {
    std::uint32_t job = 0;
    std::uint32_t chunks = 0;
  };

  // A job is not over while a share of it has chunks, so whoever takes one knows that it runs.
  bool take(std::uint32_t job, std::int64_t size, std::uint16_t Taken::*side, Taken& now) {
    Taken before = taken_.load(std::memory_order_relaxed);
    do {
      const auto age = static_cast<std::int32_t>(job - before.job);
      if (age < 0) return false;
      now = age == 0 ? before : Taken{.job = job};
      if (now.front + now.back >= size) return false;
      ++(now.*side);
    } while (!taken_.compare_exchange_weak(before, now, std::memory_order_relaxed));
    return true;
  }

  std::atomic<Taken> taken_;
  std::atomic<Done> done_;
};

}  // namespace hisparse::base
