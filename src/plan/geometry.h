// The sizes of a model that decide memory and speed, from a config.json or from a GGUF file that
// this build serves. Facts: reference/models.md sections 1.1, 2 and 6.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "format/metadata.h"
#include "model/model_spec.h"

namespace hisparse::plan {

// kGrouped: K and V of every KV head, all of them read in every step. kLatentSparse: one latent row
// for all heads (MLA), of which an indexer selects the rows that a step reads (DSA).
enum class Attention : std::uint8_t { kGrouped, kLatentSparse };

// How matrices lie in memory. kFp8Blocks: one byte a value and an f32 scale for each block.
enum class WeightFormat : std::uint8_t { kF32, kBf16, kFp8Blocks };

struct LatentShape {
  std::int64_t query_rank = 0;
  std::int64_t latent = 0;
  std::int64_t nope = 0;
  std::int64_t rope = 0;
  std::int64_t value = 0;
};

struct IndexerShape {
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  std::int64_t top_k = 0;
  std::int64_t layers = 0;  // that own an indexer, MTP layers left out
};

struct ExpertShape {
  std::int64_t layers = 0;  // with experts; the others are dense
  std::int64_t experts = 0;
  std::int64_t per_token = 0;
  std::int64_t shared = 0;
  std::int64_t width = 0;
};

struct StoredWeights {
  std::optional<WeightFormat> format;  // nothing: a quantisation that is not known here
  std::string name;                    // as the file calls it
  std::int64_t block_values = 0;       // kFp8Blocks: values that share a scale; 0: one a matrix
  std::int64_t bytes = 0;              // GGUF: of all tensors; 0: by the format
};

struct ModelGeometry {
  std::string architecture;
  Attention attention = Attention::kGrouped;
  std::int64_t layers = 0;  // MTP layers left out
  std::int64_t mtp_layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;     // kGrouped
  std::int64_t head_dim = 0;     // kGrouped
  LatentShape latent;            // kLatentSparse
  IndexerShape indexer;          // kLatentSparse
  std::int64_t dense_width = 0;  // of the MLP in layers without experts
  ExpertShape experts;
  std::int64_t vocabulary = 0;
  std::int64_t max_position = 0;
  bool tied = false;
  StoredWeights stored;

  std::int64_t dense_layers() const { return layers - experts.layers; }
};

// From the facts of a config.json. Unimplemented, with the list of known ones, for another
// architecture; NotFound, InvalidArgument or Unimplemented with the key for what is absent, out of
// bounds or not understood. Whatever the values, the result stays within the bounds of
// field_reader.h.
absl::StatusOr<ModelGeometry> read_geometry(const format::Metadata& config);

// Of a checkpoint that this build serves; `bytes` of all its tensors as stored. InvalidArgument
// beyond the bounds.
absl::StatusOr<ModelGeometry> geometry_of(const model::ModelSpec& spec, std::int64_t bytes);

// InvalidArgument, with the sizes that do, where `ranks` does not divide heads and widths.
absl::Status check_ranks(const ModelGeometry& geometry, std::int32_t ranks);

// Layers i of `layers` whose indexer selects (models.md 1.5): i such that
// max(i - offset + 1, 0) mod frequency == 0.
std::int64_t indexed_layers(std::int64_t layers, std::int64_t frequency, std::int64_t offset);

}  // namespace hisparse::plan
