// The identity of a checkpoint's weights.
#pragma once

#include <span>
#include <string>

#include "format/metadata.h"
#include "format/tensor_view.h"

namespace hisparse::format {

// XXH3-128, as 32 lower-case hex digits, over: each metadata key, kind and value; then of each
// tensor, in order, its name, dtype, shape, size, and its first and last 4 KiB (all of it when it
// has at most 8 KiB). Every part is preceded by its length, so that no two checkpoints share a byte
// stream. It tells different models apart, cheaply; it does not notice an edit in the middle of a
// large tensor and is no defence against one who wants a collision.
std::string checkpoint_digest(const Metadata& metadata, std::span<const TensorView> tensors);

// The same over every byte of the tensors, without the metadata: as slow as reading them. For what
// outlives the process.
std::string content_digest(std::span<const TensorView> tensors);

}  // namespace hisparse::format
