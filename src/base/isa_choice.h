// Which instructions the CPU kernels may use.
#pragma once

#include <cstdint>

namespace hisparse::base {

// The best instruction-set level that the machine has, or one that is forced.
enum class IsaChoice : std::uint8_t { kBest, kX86_64V2, kX86_64V3, kX86_64V4 };

}  // namespace hisparse::base
