// The one-row product in the fastest order of its sums: what the numerics contract is compared
// with.
#pragma once

#include <cstdint>

#include "device/cpu/kernels.h"

namespace hisparse::bench {

// out[32] = row[k] * panel^T of an f32 or bf16 panel (device/cpu/kernels.h), for even k. Two
// neighbours of k have accumulators of their own: eight vectors in all, where the contract has
// four.
void multiply_row_in_free_order(device::cpu::Element element, const void* panel, const float* row,
                                float* out, std::int64_t k);

}  // namespace hisparse::bench
