// The chunks of a job that one thread of a pool has to do, and what it has done of the whole job.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/cache_line.h"

namespace hisparse::base {

// Neighbouring chunks.
struct ChunkRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool empty() const { return begin >= end; }
};

// Its owner takes chunk after chunk from the front. Threads whose own shares are empty take the
// back half, to go through it in order, too. Nobody has to reset a share: it knows by the job's
// number that its first chunks are all there. Numbers grow, and may wrap around. Any thread may
// take, steal and look, also with the number of a job that is over.
class alignas(kCacheLine) ChunkShare {
 public:
  static constexpr std::int64_t kMaxChunks = 0xFFFF;  // of a job
  static constexpr std::int64_t kNone = -1;

  // A chunk that nobody has taken yet, or kNone. `first`: what the owner begins the job with.
  std::int64_t take(std::uint32_t job, const ChunkRange& first) {
    const ChunkRange taken = take_from(Side::kFront, job, first);
    return taken.empty() ? kNone : taken.begin;
  }
  // The back half of what is left, and of three chunks two.
  ChunkRange steal(std::uint32_t job, const ChunkRange& first) {
    return take_from(Side::kBack, job, first);
  }

  // The share is empty, or of an earlier job, and has these chunks now: others may take of them.
  // The owner's thread.
  void refill(std::uint32_t job, const ChunkRange& range) {
    left_.store(left_of(job, range), std::memory_order_relaxed);
  }

  // The owner has done `chunks` of the job so far, of any share. Its thread.
  void tell_done(std::uint32_t job, std::int64_t chunks) {
    done_.store({.job = job, .chunks = static_cast<std::uint32_t>(chunks)});
  }
  // What the owner said of this job; until then 0.
  std::int64_t done(std::uint32_t job) const {
    const Done done = done_.load();
    return done.job == job ? done.chunks : 0;
  }

  // No chunk of this job is left, nor of those before it. Whoever begins jobs, between two of them.
  void close(std::uint32_t job) {
    left_.store({.job = job});
    done_.store({.job = job});
  }

 private:
  enum class Side : std::uint8_t { kFront, kBack };
  struct Left {
    std::uint32_t job = 0;
    std::uint16_t begin = 0;
    std::uint16_t end = 0;
  };
  struct Done {
    std::uint32_t job = 0;
    std::uint32_t chunks = 0;
  };

  // A job is not over while a share of it has chunks, so whoever takes one knows that it runs.
  ChunkRange take_from(Side side, std::uint32_t job, const ChunkRange& first) {
    Left before = left_.load(std::memory_order_relaxed);
    ChunkRange taken;
    ChunkRange rest;
    do {
      const auto age = static_cast<std::int32_t>(job - before.job);
      if (age < 0) return {};
      const ChunkRange now =
          age == 0 ? ChunkRange{.begin = before.begin, .end = before.end} : first;
      if (now.empty()) return {};
      taken = rest = now;
      if (side == Side::kFront) {
        taken.end = rest.begin = now.begin + 1;
      } else {
        taken.begin = rest.end = now.begin + (now.end - now.begin) / 2;
      }
    } while (!left_.compare_exchange_weak(before, left_of(job, rest), std::memory_order_relaxed));
    return taken;
  }
  static Left left_of(std::uint32_t job, const ChunkRange& range) {
    return {.job = job,
            .begin = static_cast<std::uint16_t>(range.begin),
            .end = static_cast<std::uint16_t>(range.end)};
  }

  static_assert(std::atomic<Left>::is_always_lock_free);
  std::atomic<Left> left_;
  std::atomic<Done> done_;
};

}  // namespace hisparse::base
