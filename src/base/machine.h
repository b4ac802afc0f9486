// What this process may use of the machine: control groups and affinity count, not only the
// hardware.
#pragma once

#include <cstdint>

namespace hisparse::base {

// Cores by affinity mask and control-group quota (rounded up); at least 1.
int available_cores();

// Bytes that can still be taken: the smaller of what the kernel calls available and what the
// control group leaves. Page cache counts as available. 0 when nothing is known.
std::int64_t available_memory();

}  // namespace hisparse::base
