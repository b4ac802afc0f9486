// The kernels for x86-64-v3; the flag is set in ../CMakeLists.txt. See kernels.h for what may not
// be in here.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/float_formats.h"
#include "device/cpu/kernels.h"

namespace hisparse::device::cpu {
namespace {

// First, what the others use.
#include "device/cpu/kernel_vector.inc.h"

#include "device/cpu/kernel_integer_ops.inc.h"
#include "device/cpu/kernel_rowwise.inc.h"

#include "device/cpu/kernel_attention.inc.h"
#include "device/cpu/kernel_linear.inc.h"
#include "device/cpu/kernel_pack.inc.h"

constexpr KernelTable kTable = {.multiply_panel = multiply_panel,
                                .pack_rows = pack_rows,
                                .rms_norm = rms_norm,
                                .silu_mul = silu_mul,
                                .index_of_max = index_of_max,
                                .softmax_weights = softmax_weights,
                                .attend_segment = attend_segment,
                                .merge_partial = merge_partial,
                                .finish_attention = finish_attention};

}  // namespace

const KernelTable& kernels_v3() { return kTable; }

}  // namespace hisparse::device::cpu
