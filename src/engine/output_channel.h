// The bounded way from the output thread to one client.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>

#include "engine/request.h"

namespace hisparse::engine {

// One producer (the output thread), one consumer (an I/O thread). Deltas that nobody has taken yet
// are merged, so a slow client costs bytes and not messages; past the capacity push() refuses and
// the request is cancelled.
class OutputChannel {
 public:
  explicit OutputChannel(std::size_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}
  OutputChannel(const OutputChannel&) = delete;
  OutputChannel& operator=(const OutputChannel&) = delete;

  // Called on the producer's thread whenever the channel turns from empty to non-empty; must not
  // block and must not call back into the channel (post to your own executor). Set before the
  // request is submitted.
  void set_notify(std::function<void()> notify);

  // Producer. False when the unread text would pass the capacity; a chunk with a finish is always
  // accepted. After a finish nothing more is accepted.
  [[nodiscard]] bool push(OutputChunk chunk);

  // Consumer: everything since the last call as one chunk, or nothing.
  std::optional<OutputChunk> take();
  // Consumer: as take(), but waits up to `limit` for something.
  std::optional<OutputChunk> wait_take(std::chrono::nanoseconds limit);

 private:
  std::optional<OutputChunk> take_locked();

  const std::size_t capacity_bytes_;
  std::function<void()> notify_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::optional<OutputChunk> pending_;  // guarded by mutex_
  bool finished_ = false;               // guarded by mutex_
};

}  // namespace hisparse::engine
