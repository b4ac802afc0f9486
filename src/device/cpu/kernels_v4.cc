// The kernels for x86-64-v4 with VNNI and BF16; the flags are set in ../CMakeLists.txt. See
// kernels.h for what may not be in here.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/float_formats.h"
#include "device/cpu/kernels.h"

#define HISPARSE_AVX512 1

namespace hisparse::device::cpu {
namespace {

#include "device/cpu/kernel_table.inc.h"

}  // namespace

const KernelTable& kernels_v4() { return kTable; }

}  // namespace hisparse::device::cpu
