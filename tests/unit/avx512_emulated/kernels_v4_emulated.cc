// The AVX-512 kernels as a machine without AVX-512 runs them: SIMDe stands in for the instructions.
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/float_formats.h"
#include "tests/unit/avx512_emulated/kernels_v4_emulated.h"

#define HISPARSE_AVX512 1

namespace hisparse::device::cpu {
namespace {

#include "device/cpu/kernel_table.inc.h"

}  // namespace

const KernelTable& kernels_v4_emulated() { return kTable; }

}  // namespace hisparse::device::cpu
