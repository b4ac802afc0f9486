// A Hugging Face folder: config.json beside one or several safetensors files
// (reference/models.md 3.1).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "format/mapped_file.h"
#include "format/metadata.h"
#include "format/tensor_view.h"

namespace hisparse::format {

struct HuggingFaceContents {
  std::vector<MappedFile> files;  // the weights; the views below point into them
  Metadata metadata;
  std::vector<TensorView> tensors;  // in file order, shards in name order
};

// From a tensor's name to the name of the shard that holds it.
using WeightMap = std::map<std::string, std::string, std::less<>>;

// Parses model.safetensors.index.json. Shard names must be plain file names that end in
// .safetensors: a path separator, "..", or a NUL is refused. InvalidArgument names `file`, the
// tensor and the reason.
absl::StatusOr<WeightMap> parse_weight_map(std::string_view text, std::string_view file);

// The facts of a config.json alone, no weights needed: `path` is that file, or the folder that
// holds it. NotFound says which of them is missing.
absl::StatusOr<Metadata> read_model_config(const std::string& path);

// Reads config.json (required) and generation_config.json (optional; its keys get the prefix
// "generation_config."), and maps model.safetensors or, when that is absent, the shards that
// model.safetensors.index.json lists. The index rules: each tensor must be in the shard it is
// mapped to, and tensors that it does not map to their shard are left out.
absl::StatusOr<HuggingFaceContents> open_hugging_face(const std::string& folder);

}  // namespace hisparse::format
