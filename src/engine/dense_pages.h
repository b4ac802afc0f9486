// The pages of a dense decoder: what kv/ lays out and model/ reads and writes.
#pragma once

#include "kv/cache_group.h"
#include "model/rank_model.h"

namespace hisparse::engine {

// The one cache group of a dense decoder on one rank: planes "K" and "V".
kv::CacheGroup dense_cache_group(const model::ModelSpec& spec, const model::Shard& shard,
                                 base::DType kv_dtype);

// The same layout as the model takes it.
model::PageGeometry page_geometry(const kv::PageLayout& layout, std::int32_t layers);

}  // namespace hisparse::engine
