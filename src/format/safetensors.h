// One safetensors file (reference/models.md section 3.1).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "format/tensor_view.h"

namespace hisparse::format {

// Checks the whole header and returns views into `file`, in the order of their data. Tensors must
// fill the data section without a hole or an overlap. Read dtypes: F32, F16, BF16. InvalidArgument
// names `file_name`, the tensor and the reason; `file` may hold anything.
absl::StatusOr<std::vector<TensorView>> parse_safetensors(std::span<const std::byte> file,
                                                          std::string_view file_name);

}  // namespace hisparse::format
