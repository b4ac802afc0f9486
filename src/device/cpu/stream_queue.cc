#include "device/cpu/stream_queue.h"

#include <algorithm>

#include "base/check.h"
#include "base/philox.h"

namespace hisparse::device::cpu {

CpuStream::~CpuStream() { queue_->forget(*this); }

std::unique_ptr<Stream> StreamQueue::create_stream() {
  auto stream = std::make_unique<CpuStream>(this);
  std::lock_guard lock(mutex_);
  streams_.push_back(stream.get());
  return stream;
}

void StreamQueue::forget(CpuStream& stream) {
  std::lock_guard lock(mutex_);
  HS_CHECK(!stream.running_);
  for (const auto& entry : stream.entries_) {
    HS_CHECK(!entry.work && "a stream was destroyed before its work had run");
    pending_.erase(entry.reaches);
  }
  std::erase(streams_, &stream);
}

void StreamQueue::push(Stream& stream, CpuStream::Entry entry) {
  auto& target = static_cast<CpuStream&>(stream);
  HS_CHECK(target.queue_ == this && "a stream of another device");
  {
    std::lock_guard lock(mutex_);
    target.entries_.push_back(std::move(entry));
  }
  progress_.notify_all();
}

Event StreamQueue::record(Stream& stream) {
  auto& target = static_cast<CpuStream&>(stream);
  HS_CHECK(target.queue_ == this && "a stream of another device");
  std::lock_guard lock(mutex_);
  const Event event = {.ticket = ++last_ticket_};
  if (mode_ == StreamMode::kDeferred) {
    pending_.insert(event.ticket);
    target.entries_.push_back({.work = {}, .reaches = event.ticket});
  }
  return event;
}

void StreamQueue::wait(Stream& stream, Event event) {
  if (event.ticket == 0) return;
  {
    std::lock_guard lock(mutex_);
    HS_CHECK(event.ticket <= last_ticket_ && "deadlock: a wait for an event never recorded");
  }
  if (mode_ == StreamMode::kDeferred) push(stream, {.work = {}, .awaits = event.ticket});
}

bool StreamQueue::runnable_locked(const CpuStream& stream) const {
  if (stream.running_ || stream.entries_.empty()) return false;
  const auto& head = stream.entries_.front();
  return head.awaits == 0 || reached_locked(head.awaits);
}

std::uint64_t StreamQueue::random_locked(std::uint64_t bound) {
  return base::philox4x32(seed_, draws_++)[0] % bound;
}

StreamQueue::Step StreamQueue::step_locked(std::unique_lock<std::mutex>& lock) {
  std::uint64_t runnable = 0;
  bool others_run = false;
  for (const CpuStream* stream : streams_) {
    if (runnable_locked(*stream)) ++runnable;
    others_run |= stream->running_ && stream->runner_ != std::this_thread::get_id();
  }
  if (runnable == 0) return others_run ? Step::kBusy : Step::kStuck;
  std::uint64_t skip = random_locked(runnable);
  CpuStream* chosen = nullptr;
  for (CpuStream* stream : streams_) {
    if (runnable_locked(*stream) && skip-- == 0) {
      chosen = stream;
      break;
    }
  }
  CpuStream::Entry entry = std::move(chosen->entries_.front());
  chosen->entries_.pop_front();
  if (entry.work) {
    chosen->running_ = true;
    chosen->runner_ = std::this_thread::get_id();
    lock.unlock();
    entry.work();
    lock.lock();
    chosen->running_ = false;
  }
  pending_.erase(entry.reaches);
  progress_.notify_all();
  return Step::kRan;
}

bool StreamQueue::query(Event event) {
  std::unique_lock lock(mutex_);
  HS_CHECK(event.ticket <= last_ticket_);
  if (reached_locked(event.ticket)) return true;
  constexpr std::uint64_t kMaxSteps = 4;
  for (std::uint64_t steps = random_locked(kMaxSteps + 1); steps > 0; --steps) {
    if (reached_locked(event.ticket) || step_locked(lock) != Step::kRan) break;
  }
  return reached_locked(event.ticket);
}

void StreamQueue::synchronize(Event event) {
  std::unique_lock lock(mutex_);
  HS_CHECK(event.ticket <= last_ticket_ && "deadlock: synchronising with an event never recorded");
  while (!reached_locked(event.ticket)) {
    const Step step = step_locked(lock);
    HS_CHECK(step != Step::kStuck && "deadlock: the event can never be reached");
    if (step == Step::kBusy) progress_.wait(lock);
  }
}

}  // namespace hisparse::device::cpu
