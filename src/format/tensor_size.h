// Sizes of tensors from untrusted shapes, with every overflow caught.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/dtype.h"

namespace hisparse::format {

// Bytes of a tensor of `shape` (outermost first; rank 0 is one value) stored as whole blocks of
// `dtype`. Empty when a dimension is negative, a product overflows 63 bits, or the innermost
// dimension (1 for rank 0) is not a whole number of blocks.
std::optional<std::uint64_t> stored_bytes(base::DType dtype, std::span<const std::int64_t> shape);

}  // namespace hisparse::format
