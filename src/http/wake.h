// Two ways to wake a connection's coroutine. Only for the .cc files of http/ that do I/O.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "boost/asio/associated_executor.hpp"
#include "boost/asio/async_result.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/use_awaitable.hpp"

namespace hisparse::http {

// A flag with at most one coroutine waiting for it, on the thread of one io_context. Unlike a timer
// used as a condition variable it costs nothing per token but the resumption.
class Signal final {
 public:
  void fire() {
    fired_ = true;
    if (auto waiter = std::exchange(waiter_, nullptr)) waiter->resume();
  }

  // Returns once fire() has been called since the last return.
  boost::asio::awaitable<void> wait() {
    while (!fired_) co_await next();
    fired_ = false;
  }

 private:
  struct Waiter {
    virtual ~Waiter() = default;
    virtual void resume() = 0;
  };

  template <typename Handler>
  struct HandlerWaiter final : Waiter {
    explicit HandlerWaiter(Handler value) : handler(std::move(value)) {}
    void resume() override {
      const auto executor = boost::asio::get_associated_executor(handler);
      boost::asio::post(executor, std::move(handler));
    }
    Handler handler;
  };

  boost::asio::awaitable<void> next() {
    return boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void()>(
        [this](auto handler) {
          waiter_ = std::make_unique<HandlerWaiter<decltype(handler)>>(std::move(handler));
        },
        boost::asio::use_awaitable);
  }

  bool fired_ = false;
  std::unique_ptr<Waiter> waiter_;
};

// Carries a notification from the engine's output thread to the connection's thread: at most one
// message is under way. Lives as long as the engine holds it; detach() cuts it from the connection.
class EngineWake final : public std::enable_shared_from_this<EngineWake> {
 public:
  EngineWake(boost::asio::io_context& context, std::function<void()> on_wake)
      : context_(&context), on_wake_(std::move(on_wake)) {}

  // Any thread.
  void notify() {
    std::lock_guard lock(mutex_);
    if (context_ == nullptr || under_way_) return;
    under_way_ = true;
    boost::asio::post(*context_, [self = shared_from_this()] { self->arrive(); });
  }

  // The connection's thread. No call of `on_wake` comes after it.
  void detach() {
    std::lock_guard lock(mutex_);
    context_ = nullptr;
  }

 private:
  void arrive() {
    {
      std::lock_guard lock(mutex_);
      under_way_ = false;
      if (context_ == nullptr) return;
    }
    on_wake_();
  }

  std::mutex mutex_;
  boost::asio::io_context* context_;  // guarded by mutex_; null once detached
  bool under_way_ = false;            // guarded by mutex_
  std::function<void()> on_wake_;
};

}  // namespace hisparse::http
