// A checkpoint on disk, opened for reading: a GGUF file, or a Hugging Face folder with config.json
// and one or several safetensors files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "format/metadata.h"
#include "format/tensor_view.h"

namespace hisparse::format {

enum class CheckpointKind { kGguf, kHuggingFace };

// Owns the mappings; the views live as long as it does. Immutable: any thread may read.
class Checkpoint {
 public:
  // `path` is a .gguf file (recognised by its magic, not by its name), or a folder. Every size,
  // offset and count is checked here. Errors name the file, the tensor and the reason, and never
  // depend on the content being well-formed.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> open(const std::string& path);

  virtual ~Checkpoint() = default;
  virtual CheckpointKind kind() const = 0;
  virtual const Metadata& metadata() const = 0;
  // In file order, shards in name order.
  virtual const std::vector<TensorView>& tensors() const = 0;
  // Null when there is none of this name.
  virtual const TensorView* find(std::string_view name) const = 0;
  // The tensor's bytes will not be read soon: they may leave the process's resident memory. They
  // stay readable.
  virtual void release(const TensorView& tensor) const = 0;
  // 128-bit hex digest that identifies the weights: metadata, tensor names, shapes, dtypes and
  // sampled content (not a full hash: cheap on large files). Part of every KV block key.
  virtual std::string digest() const = 0;
};

}  // namespace hisparse::format
