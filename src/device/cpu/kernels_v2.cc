// The kernels for x86-64-v2; the flags are set in ../CMakeLists.txt. See kernels.h for what may not
// be in here.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/float_formats.h"
#include "device/cpu/kernels.h"

namespace hisparse::device::cpu {
namespace {

#include "device/cpu/kernel_table.inc.h"

}  // namespace

const KernelTable& kernels_v2() { return kTable; }

}  // namespace hisparse::device::cpu
