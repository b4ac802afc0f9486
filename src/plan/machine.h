// The machines with GPUs that a plan is made for. Bandwidths are stated figures, not measurements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hisparse::plan {

// Bytes per second; 0: not known.
struct Bandwidths {
  double memory = 0.0;  // device memory, each device
  double stream = 0.0;  // host memory to one device, large copies
  double gather = 0.0;  // the same, scattered rows read by a kernel
  double disk = 0.0;    // files, the whole machine
};

struct Machine {
  std::string device;       // "H200"
  std::int32_t count = 1;   // devices
  std::int64_t memory = 0;  // bytes that a process can take, each device
  Bandwidths bandwidths;
};

// "8xH200", "H200" (one); letters in either case. InvalidArgument with the known ones.
absl::StatusOr<Machine> parse_machine(std::string_view text);

}  // namespace hisparse::plan
