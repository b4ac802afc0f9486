// SIGINT and SIGTERM as something that the main thread asks for.
#pragma once

#include <csignal>
#include <ctime>

namespace hisparse::app {

// Blocks the signals that end the process, before any thread exists; wait() takes them on the main
// thread.
class ShutdownSignals final {
 public:
  ShutdownSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    // A write to a closed connection is an error code, not the end of the process.
    std::signal(SIGPIPE, SIG_IGN);
  }
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  // Whether one has come and waits to be taken. Any thread.
  static bool pending() {
    sigset_t set;
    return sigpending(&set) == 0 &&
           (sigismember(&set, SIGINT) == 1 || sigismember(&set, SIGTERM) == 1);
  }
  // The signal's number, or -1 after `limit`.
  int wait(const timespec& limit) { return sigtimedwait(&set_, nullptr, &limit); }
  // From now on a signal ends the process at once.
  void restore() { pthread_sigmask(SIG_UNBLOCK, &set_, nullptr); }

 private:
  sigset_t set_;
};

}  // namespace hisparse::app
