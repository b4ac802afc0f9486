// The engine as front ends (HTTP, later gRPC, and `hisparse generate`) see it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/engine_stats.h"
#include "engine/output_channel.h"
#include "engine/request.h"

namespace hisparse::engine {

enum class Lifecycle : std::uint8_t { kStarting, kReady, kDraining, kStopped, kFailed };

// A request in flight. Move-only; the destructor cancels what has not finished. Any one thread at a
// time.
class RequestHandle {
 public:
  RequestHandle() = default;
  RequestHandle(std::shared_ptr<OutputChannel> output, std::function<void()> cancel)
      : output_(std::move(output)), cancel_(std::move(cancel)) {}
  RequestHandle(RequestHandle&& other) noexcept
      : output_(std::move(other.output_)), cancel_(std::exchange(other.cancel_, nullptr)) {}
  RequestHandle& operator=(RequestHandle&& other) noexcept {
    std::swap(output_, other.output_);
    std::swap(cancel_, other.cancel_);
    return *this;
  }
  // Cancelling a request that has finished has no effect.
  ~RequestHandle() {
    if (cancel_) cancel_();
  }

  OutputChannel& output() const { return *output_; }

 private:
  std::shared_ptr<OutputChannel> output_;
  std::function<void()> cancel_;
};

// Any thread. Handles must not outlive it.
class Frontend {
 public:
  virtual ~Frontend() = default;

  // Queues a request; `notify` is called from the output thread when output arrives (see
  // OutputChannel; may be empty). Errors: InvalidArgument (parameters), OutOfRange (can never fit:
  // prompt + max_tokens over the model length or over the KV pool), ResourceExhausted (the queue is
  // full: try later), Unavailable (starting, draining, stopped or failed).
  virtual absl::StatusOr<RequestHandle> submit(Request request, std::function<void()> notify) = 0;

  // The newest snapshot.
  virtual std::shared_ptr<const EngineStats> stats() const = 0;
  virtual Lifecycle lifecycle() const = 0;
  // False when there is work and no step has completed for longer than the hang limit.
  virtual bool making_progress() const = 0;
};

}  // namespace hisparse::engine
