#include "engine/output_channel.h"

#include <utility>

namespace hisparse::engine {

void OutputChannel::set_notify(std::function<void()> notify) { notify_ = std::move(notify); }

bool OutputChannel::push(OutputChunk chunk) {
  bool was_empty;
  {
    std::lock_guard lock(mutex_);
    if (finished_) return false;
    const std::size_t unread = pending_ ? pending_->text.size() : 0;
    if (!chunk.finish && unread + chunk.text.size() > capacity_bytes_) return false;
    finished_ = chunk.finish.has_value();
    was_empty = !pending_;
    if (was_empty) {
      pending_ = std::move(chunk);
    } else {
      pending_->text += chunk.text;
      pending_->usage = chunk.usage;
      pending_->finish = std::move(chunk.finish);
    }
  }
  filled_.notify_one();
  if (was_empty && notify_) notify_();
  return true;
}

std::optional<OutputChunk> OutputChannel::take() {
  std::lock_guard lock(mutex_);
  return take_locked();
}

std::optional<OutputChunk> OutputChannel::wait_take(std::chrono::nanoseconds limit) {
  std::unique_lock lock(mutex_);
  filled_.wait_for(lock, limit, [&] { return pending_.has_value(); });
  return take_locked();
}

std::optional<OutputChunk> OutputChannel::take_locked() {
  return std::exchange(pending_, std::nullopt);
}

}  // namespace hisparse::engine
