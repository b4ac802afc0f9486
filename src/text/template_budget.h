// What one rendering may cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace hisparse::text::jinja {

// Counts down; one per rendering. A step is a node visited or an element made. Bytes are those of
// the strings made or searched on the way, so that repeated concatenation cannot eat memory or
// time.
class Budget {
 public:
  static constexpr std::int64_t kMaxSteps = 4'000'000;
  static constexpr std::int64_t kMaxStringBytes = std::int64_t{256} << 20;
  static constexpr std::size_t kMaxOutputBytes = std::size_t{64} << 20;

  absl::Status charge_steps(std::size_t count) {
    if (count > static_cast<std::uint64_t>(steps_)) {
      return absl::ResourceExhaustedError("chat template ran past " + std::to_string(kMaxSteps) +
                                          " steps");
    }
    steps_ -= static_cast<std::int64_t>(count);
    return absl::OkStatus();
  }

  absl::Status charge_bytes(std::size_t count) {
    if (count > static_cast<std::uint64_t>(bytes_)) {
      return absl::ResourceExhaustedError("chat template made more than " +
                                          std::to_string(kMaxStringBytes) + " bytes of strings");
    }
    bytes_ -= static_cast<std::int64_t>(count);
    return absl::OkStatus();
  }

 private:
  std::int64_t steps_ = kMaxSteps;
  std::int64_t bytes_ = kMaxStringBytes;
};

}  // namespace hisparse::text::jinja
