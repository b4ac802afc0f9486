// How the disk tier reads.
#pragma once

#include <cstdint>

namespace hisparse::base {

// kIoUring: many reads of a thread are under way at a time. kThreads: one for each of some threads.
// kAuto: io_uring where the kernel allows it.
enum class DiskIo : std::uint8_t { kAuto, kIoUring, kThreads };

}  // namespace hisparse::base
