// Parameters of a model by part, and their bytes on one rank (reference/models.md 1.2, 1.8, 6.1).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/cache.h"
#include "plan/geometry.h"

namespace hisparse::plan {

enum class WeightPart : std::uint8_t {
  kEmbedding,
  kOutput,
  kAttention,
  kIndexer,
  kDense,
  kExperts,
  kSharedExperts,
  kRouter,
  kNorms,
  kMtp
};
std::string_view name_of(WeightPart part);

// kLookup: a row for each token. kEveryToken: read whole by each step. kRouted: a step reads the
// experts that its tokens chose.
enum class WeightUse : std::uint8_t { kLookup, kEveryToken, kRouted };

// kMatrix: in the format of the weights. kWide: never below 16 bits (embeddings, norms, routers).
enum class WeightPrecision : std::uint8_t { kMatrix, kWide };

struct WeightGroup {
  WeightPart part = WeightPart::kNorms;
  WeightUse use = WeightUse::kEveryToken;
  WeightPrecision precision = WeightPrecision::kMatrix;
  std::int64_t parameters = 0;  // of the model
  std::int64_t rank = 0;        // of them on each rank
};

// Without the scales of quantised matrices. `ranks` must divide the model (check_ranks()).
std::vector<WeightGroup> weight_groups(const ModelGeometry& geometry, std::int32_t ranks, Mtp mtp);

std::int64_t parameters(const std::vector<WeightGroup>& groups);

// Read for one token: everything but the embedding's table and the experts not chosen.
double active_parameters(const std::vector<WeightGroup>& groups, const ExpertShape& experts);

struct WeightBytes {
  std::int64_t whole = 0;  // of the model, as one copy
  std::int64_t rank = 0;   // on each rank
};

// With `stored.bytes` (a GGUF file) those bytes, spread as the parameters are; else by `format`.
WeightBytes weight_bytes(const std::vector<WeightGroup>& groups, const StoredWeights& stored,
                         WeightFormat format);

// Bytes that one rank reads in a step with `tokens` tokens, each of which chooses its experts at
// random: e * (1 - (1 - k/e)^tokens) of e experts are read.
double step_weight_bytes(const std::vector<WeightGroup>& groups, const ModelGeometry& geometry,
                         WeightFormat format, double tokens);

}  // namespace hisparse::plan
