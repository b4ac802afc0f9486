// What a start spends its time on, for the log.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace hisparse::app {

// One thread. Phases follow each other without gaps from construction on.
class StartupPhases final {
 public:
  // Ends the phase that has been running.
  void end(std::string_view name);
  // "0.25 s: file 0.01, tokenizer 0.05, ..." (seconds).
  std::string summary() const;

 private:
  using Clock = std::chrono::steady_clock;

  const Clock::time_point start_ = Clock::now();
  Clock::time_point phase_start_ = start_;
  std::string phases_;
};

}  // namespace hisparse::app
