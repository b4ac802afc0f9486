// One GGUF file (reference/models.md section 3.2).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "format/metadata.h"
#include "format/tensor_view.h"

namespace hisparse::format {

struct GgufContents {
  Metadata metadata;
  std::vector<TensorView>
      tensors;  // in the order of their descriptions; views into the parsed bytes
};

// True when the bytes begin with the magic "GGUF".
bool has_gguf_magic(std::span<const std::byte> file);

// Checks everything and returns views into `file`. Versions 2 and 3, little-endian; tensor types
// F32, F16, BF16, Q8_0, Q4_0, Q4_1. The dimensions of the file, innermost first, come out as
// shapes, outermost first. Tensors may leave gaps (alignment) but not overlap. One part of a split
// model is refused. InvalidArgument names `file_name`, the key or tensor, and the reason; `file`
// may hold anything.
absl::StatusOr<GgufContents> parse_gguf(std::span<const std::byte> file,
                                        std::string_view file_name);

}  // namespace hisparse::format
