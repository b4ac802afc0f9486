// The kernels of one level and their table, for kernels_v*.cc only, inside their anonymous
// namespace.

// First, what the others use.
#include "device/cpu/kernel_vector.inc.h"

#include "device/cpu/kernel_columns.inc.h"
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
