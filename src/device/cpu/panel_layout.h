// Values into and out of a panel, one panel at a time (the layouts are in kernels.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cpu/kernels.h"
#include "device/device.h"

namespace hisparse::device::cpu {

// The panel element of a matrix.
Element element_for(base::DType stored, Compute compute);
// The form of the rows that such a matrix meets.
Activation activation_for(Element element, Compute compute);

// Fills panel `index`: output columns index * 32 and on. `panel` holds zeros or anything.
void pack_panel(const HostMatrix& matrix, Element element, std::int64_t index, std::byte* panel);

// out[k] = the values of one of the panel's columns.
void read_column(const std::byte* panel, Element element, int column, std::int64_t k, float* out);

}  // namespace hisparse::device::cpu
