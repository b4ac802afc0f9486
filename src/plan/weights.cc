#include "plan/weights.h"

#include <algorithm>
#include <cmath>

namespace hisparse::plan {
namespace {

constexpr std::int64_t kScaleBytes = 4;

// Collects groups; a matrix is split over the ranks or the same on each.
class Groups final {
 public:
  explicit Groups(std::int64_t ranks) : ranks_(ranks) {}

  void split(WeightPart part, std::int64_t parameters, WeightUse use = WeightUse::kEveryToken) {
    add({.part = part, .use = use, .parameters = parameters, .rank = parameters / ranks_});
  }
  void replicate(WeightPart part, std::int64_t parameters) {
    add({.part = part, .parameters = parameters, .rank = parameters});
  }
  void split_wide(WeightPart part, std::int64_t parameters,
                  WeightUse use = WeightUse::kEveryToken) {
    add({.part = part,
         .use = use,
         .precision = WeightPrecision::kWide,
         .parameters = parameters,
         .rank = parameters / ranks_});
  }
  void replicate_wide(WeightPart part, std::int64_t parameters) {
    add({.part = part,
         .precision = WeightPrecision::kWide,
         .parameters = parameters,
         .rank = parameters});
  }
  void add(const WeightGroup& group) {
    if (group.parameters > 0) groups_.push_back(group);
  }

  std::int64_t ranks() const { return ranks_; }
  std::vector<WeightGroup> take() { return std::move(groups_); }

 private:
  const std::int64_t ranks_;
  std::vector<WeightGroup> groups_;
};

void add_grouped_attention(Groups& groups, const ModelGeometry& geometry, WeightPart part,
                           std::int64_t layers) {
  const std::int64_t head = geometry.hidden * geometry.head_dim;
  groups.split(part, layers * head * 2 * geometry.heads);  // q, o
  // A KV head is repeated on several ranks where there are fewer heads than ranks.
  groups.add(
      {.part = part,
       .parameters = layers * head * 2 * geometry.kv_heads,
       .rank = layers * head * 2 * std::max<std::int64_t>(geometry.kv_heads / groups.ranks(), 1)});
}

void add_latent_attention(Groups& groups, const ModelGeometry& geometry, WeightPart part,
                          std::int64_t layers) {
  const LatentShape& latent = geometry.latent;
  const std::int64_t queries = geometry.heads * (latent.nope + latent.rope) * latent.query_rank;
  const std::int64_t expand = geometry.heads * (latent.nope + latent.value) * latent.latent;
  const std::int64_t output = geometry.hidden * geometry.heads * latent.value;
  groups.split(part, layers * (queries + expand + output));
  groups.replicate(part,
                   layers * geometry.hidden * (latent.query_rank + latent.latent + latent.rope));
}

void add_indexer(Groups& groups, const ModelGeometry& geometry, WeightPart part,
                 std::int64_t layers) {
  const IndexerShape& indexer = geometry.indexer;
  groups.replicate(
      part, layers * indexer.dim * (indexer.heads * geometry.latent.query_rank + geometry.hidden));
  groups.replicate_wide(part, layers * (indexer.heads * geometry.hidden + 2 * indexer.dim));
}

void add_attention(Groups& groups, const ModelGeometry& geometry, WeightPart part,
                   std::int64_t layers) {
  if (geometry.attention == Attention::kGrouped) {
    add_grouped_attention(groups, geometry, part, layers);
  } else {
    add_latent_attention(groups, geometry, part, layers);
  }
}

std::int64_t expert_parameters(const ModelGeometry& geometry) {
  return 3 * geometry.hidden * geometry.experts.width;
}

// An MTP layer: a decoder layer with experts, the matrix that joins embedding and hidden state,
// and norms (models.md 1.7).
void add_mtp(Groups& groups, const ModelGeometry& geometry) {
  const std::int64_t layers = geometry.mtp_layers;
  const std::int64_t expert = expert_parameters(geometry);
  add_attention(groups, geometry, WeightPart::kMtp, layers);
  if (geometry.attention == Attention::kLatentSparse) {
    add_indexer(groups, geometry, WeightPart::kMtp, layers);
  }
  groups.split(WeightPart::kMtp, layers * geometry.experts.experts * expert, WeightUse::kRouted);
  groups.split(WeightPart::kMtp, layers * geometry.experts.shared * expert);
  constexpr std::int64_t kNorms = 5;  // of the layer, the two inputs and the output
  groups.replicate_wide(
      WeightPart::kMtp,
      layers * geometry.hidden * (geometry.experts.experts + 2 * geometry.hidden + kNorms));
}

double format_bytes(const WeightGroup& group, const StoredWeights& stored, WeightFormat format) {
  const auto parameters = static_cast<double>(group.rank);
  if (format == WeightFormat::kF32) return 4.0 * parameters;
  if (format == WeightFormat::kBf16 || group.precision == WeightPrecision::kWide) {
    return 2.0 * parameters;
  }
  const double scales = stored.block_values > 0 ? static_cast<double>(kScaleBytes) /
                                                      static_cast<double>(stored.block_values)
                                                : 0.0;
  return parameters * (1.0 + scales);
}

// From bytes by the format to bytes as stored.
double stored_share(const std::vector<WeightGroup>& groups, const StoredWeights& stored,
                    WeightFormat format) {
  if (stored.bytes == 0) return 1.0;
  double whole = 0.0;
  for (WeightGroup group : groups) {
    group.rank = group.parameters;
    whole += format_bytes(group, stored, format);
  }
  return whole > 0.0 ? static_cast<double>(stored.bytes) / whole : 1.0;
}

}  // namespace

std::string_view name_of(WeightPart part) {
  switch (part) {
    case WeightPart::kEmbedding:
      return "embedding";
    case WeightPart::kOutput:
      return "output";
    case WeightPart::kAttention:
      return "attention";
    case WeightPart::kIndexer:
      return "indexer";
    case WeightPart::kDense:
      return "dense_mlp";
    case WeightPart::kExperts:
      return "experts";
    case WeightPart::kSharedExperts:
      return "shared_experts";
    case WeightPart::kRouter:
      return "router";
    case WeightPart::kNorms:
      return "norms";
    case WeightPart::kMtp:
      return "mtp";
  }
  return "unknown";
}

std::vector<WeightGroup> weight_groups(const ModelGeometry& geometry, std::int32_t ranks, Mtp mtp) {
  Groups groups(ranks);
  const ExpertShape& experts = geometry.experts;
  const std::int64_t expert = expert_parameters(geometry);
  const std::int64_t table = geometry.vocabulary * geometry.hidden;
  // A tied table is read as the output matrix.
  if (!geometry.tied) groups.split_wide(WeightPart::kEmbedding, table, WeightUse::kLookup);
  groups.split_wide(WeightPart::kOutput, table);
  add_attention(groups, geometry, WeightPart::kAttention, geometry.layers);
  if (geometry.attention == Attention::kLatentSparse) {
    add_indexer(groups, geometry, WeightPart::kIndexer, geometry.indexer.layers);
  }
  groups.split(WeightPart::kDense,
               geometry.dense_layers() * 3 * geometry.hidden * geometry.dense_width);
  groups.split(WeightPart::kExperts, experts.layers * experts.experts * expert, WeightUse::kRouted);
  groups.split(WeightPart::kSharedExperts, experts.layers * experts.shared * expert);
  groups.replicate_wide(WeightPart::kRouter,
                        experts.layers * experts.experts * (geometry.hidden + 1));
  const std::int64_t latents = geometry.attention == Attention::kLatentSparse
                                   ? geometry.latent.query_rank + geometry.latent.latent
                                   : 0;
  groups.replicate_wide(WeightPart::kNorms,
                        geometry.layers * (2 * geometry.hidden + latents) + geometry.hidden);
  if (mtp == Mtp::kOn) add_mtp(groups, geometry);
  return groups.take();
}

std::int64_t parameters(const std::vector<WeightGroup>& groups) {
  std::int64_t sum = 0;
  for (const WeightGroup& group : groups) sum += group.parameters;
  return sum;
}

double active_parameters(const std::vector<WeightGroup>& groups, const ExpertShape& experts) {
  double sum = 0.0;
  for (const WeightGroup& group : groups) {
    if (group.use == WeightUse::kLookup) continue;
    const double share = group.use == WeightUse::kRouted ? static_cast<double>(experts.per_token) /
                                                               static_cast<double>(experts.experts)
                                                         : 1.0;
    sum += share * static_cast<double>(group.parameters);
  }
  return sum;
}

WeightBytes weight_bytes(const std::vector<WeightGroup>& groups, const StoredWeights& stored,
                         WeightFormat format) {
  const double share = stored_share(groups, stored, format);
  double whole = 0.0;
  double rank = 0.0;
  for (WeightGroup group : groups) {
    rank += share * format_bytes(group, stored, format);
    group.rank = group.parameters;
    whole += share * format_bytes(group, stored, format);
  }
  return {.whole = std::llround(whole), .rank = std::llround(rank)};
}

double step_weight_bytes(const std::vector<WeightGroup>& groups, const ModelGeometry& geometry,
                         WeightFormat format, double tokens) {
  const double share = stored_share(groups, geometry.stored, format);
  const ExpertShape& experts = geometry.experts;
  const double chosen = experts.experts > 0 ? static_cast<double>(experts.per_token) /
                                                  static_cast<double>(experts.experts)
                                            : 0.0;
  const double distinct = 1.0 - std::pow(1.0 - chosen, tokens);
  double sum = 0.0;
  for (const WeightGroup& group : groups) {
    if (group.use == WeightUse::kLookup) continue;
    sum += share * format_bytes(group, geometry.stored, format) *
           (group.use == WeightUse::kRouted ? distinct : 1.0);
  }
  return sum;
}

}  // namespace hisparse::plan
