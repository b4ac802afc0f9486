#include "engine/dense_pages.h"

namespace hisparse::engine {
namespace {

// Planes of the group, in page order.
constexpr std::size_t kKeyPlane = 0;
constexpr std::size_t kValuePlane = 1;

}  // namespace

kv::CacheGroup dense_cache_group(const model::ModelSpec& spec, const model::Shard& shard,
                                 base::DType kv_dtype) {
  const std::int64_t row_bytes = model::kv_row_bytes(spec, shard, kv_dtype);
  return {.name = "dense",
          .layers = spec.layers,
          .planes = {{"K", row_bytes}, {"V", row_bytes}},
          .sharding = kv::Sharding::kHeads};
}

model::PageGeometry page_geometry(const kv::PageLayout& layout, std::int32_t layers) {
  model::PageGeometry geometry;
  geometry.page_tokens = layout.page_tokens();
  for (std::int32_t layer = 0; layer < layers; ++layer) {
    geometry.layers.push_back(
        {.k = layout.offset(layer, kKeyPlane), .v = layout.offset(layer, kValuePlane)});
  }
  return geometry;
}

}  // namespace hisparse::engine
