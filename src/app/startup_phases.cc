#include "app/startup_phases.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace hisparse::app {
namespace {

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void StartupPhases::end(std::string_view name) {
  const Clock::time_point now = Clock::now();
  phases_ += fmt::format("{}{} {:.3f}", phases_.empty() ? "" : ", ", name,
                         seconds(now - std::exchange(phase_start_, now)));
}

std::string StartupPhases::summary() const {
  return fmt::format("{:.2f} s: {}", seconds(phase_start_ - start_), phases_);
}

}  // namespace hisparse::app
