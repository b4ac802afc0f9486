// A tensor in a memory-mapped file: bounds-checked when the file was opened, read in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace hisparse::format {

struct TensorView {
  std::string name;
  base::DType dtype = base::DType::kF32;
  std::vector<std::int64_t> shape;  // outermost first, so a matrix is [out, in]; rank 0 is a scalar
  // Exactly the stored blocks, row-major; no alignment is promised.
  std::span<const std::byte> bytes;
};

}  // namespace hisparse::format
