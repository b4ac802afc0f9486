#pragma once

#include "device/cpu/kernels.h"

namespace hisparse::device::cpu {

// kernels_v4(), for machines that have AVX2 only.
const KernelTable& kernels_v4_emulated();

}  // namespace hisparse::device::cpu
