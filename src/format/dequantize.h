// Expansion of stored blocks to f32: the reference form of quantised weights.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"

namespace hisparse::format {

// Expands whole blocks of `dtype` (layouts: reference/models.md section 3.2) into `out`.
//   blocks  out.size() / block_shape(dtype).values blocks, exactly; any alignment
//   out     a whole number of blocks; any number of rows, since rows are whole blocks
// Both sizes are the caller's own state (a TensorView fulfils them) and are checked with HS_CHECK.
// Exact: f16 and bf16 convert without rounding; scale * quant fits f32 (11 + 8 significant bits),
// so that only Q4_1's sum with its minimum rounds, once, whether or not the compiler fuses it. Any
// thread.
void dequantize_row(base::DType dtype, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace hisparse::format
