#include "plan/cache.h"

#include <algorithm>

#include "transfer/disk_pool.h"

namespace hisparse::plan {
namespace {

constexpr std::int64_t kF32Bytes = 4;
constexpr std::int64_t kBf16Bytes = 2;
constexpr std::int64_t kScaledValues = 128;  // fp8 values of a row that share an f32 scale

std::int64_t value_bytes(RowType rows) {
  switch (rows) {
    case RowType::kF32:
      return kF32Bytes;
    case RowType::kBf16:
      return kBf16Bytes;
    case RowType::kFp8:
      return 1;
  }
  return 0;
}

std::int64_t scaled_bytes(std::int64_t values) {
  return values + (values + kScaledValues - 1) / kScaledValues * kF32Bytes;
}

std::int64_t latent_bytes(const LatentShape& latent, RowType rows) {
  if (rows == RowType::kFp8) return scaled_bytes(latent.latent) + latent.rope * kBf16Bytes;
  return (latent.latent + latent.rope) * value_bytes(rows);
}

kv::CacheGroup make_group(const char* name, std::int64_t layers, std::vector<kv::Plane> planes,
                          kv::Sharding sharding) {
  return {.name = name,
          .layers = static_cast<std::int32_t>(layers),
          .planes = std::move(planes),
          .sharding = sharding};
}

std::int64_t row_bytes(const kv::CacheGroup& group) {
  std::int64_t bytes = 0;
  for (const kv::Plane& plane : group.planes) bytes += plane.row_bytes;
  return bytes;
}

// How many different copies the ranks hold.
std::int64_t copies(const kv::CacheGroup& group, std::int32_t ranks) {
  return group.sharding == kv::Sharding::kReplicated ? 1 : ranks;
}

}  // namespace

std::vector<PlannedGroup> cache_groups(const ModelGeometry& geometry, std::int32_t ranks,
                                       RowType rows, Mtp mtp) {
  const std::int64_t extra = mtp == Mtp::kOn ? geometry.mtp_layers : 0;
  if (geometry.attention == Attention::kGrouped) {
    const std::int64_t heads = std::max<std::int64_t>(geometry.kv_heads / ranks, 1);
    const std::int64_t bytes = heads * geometry.head_dim * value_bytes(rows);
    return {
        {.group = make_group("kv", geometry.layers + extra,
                             {{.name = "K", .row_bytes = bytes}, {.name = "V", .row_bytes = bytes}},
                             kv::Sharding::kHeads),
         .residency = Residency::kSpills}};
  }
  const std::int64_t key =
      rows == RowType::kF32 ? geometry.indexer.dim * kF32Bytes : scaled_bytes(geometry.indexer.dim);
  return {
      {.group = make_group("latent", geometry.layers + extra,
                           {{.name = "latent", .row_bytes = latent_bytes(geometry.latent, rows)}},
                           kv::Sharding::kReplicated),
       .residency = Residency::kSpills},
      {.group = make_group("index_key", geometry.indexer.layers + extra,
                           {{.name = "index_key", .row_bytes = key}}, kv::Sharding::kReplicated),
       .residency = Residency::kStays}};
}

TokenRows token_rows(const std::vector<PlannedGroup>& groups, std::int32_t ranks) {
  TokenRows rows;
  for (const PlannedGroup& planned : groups) {
    const std::int64_t bytes = planned.group.layers * row_bytes(planned.group);
    if (planned.residency == Residency::kStays) {
      rows.stays += bytes;
    } else {
      rows.spills += bytes;
      rows.host += bytes * copies(planned.group, ranks);
    }
  }
  return rows;
}

DiskPage disk_page(const std::vector<PlannedGroup>& groups, std::int32_t ranks,
                   std::int32_t page_tokens) {
  DiskPage page;
  for (const PlannedGroup& planned : groups) {
    if (planned.residency == Residency::kStays) continue;
    const kv::PageLayout layout(planned.group, page_tokens);
    page.bytes += copies(planned.group, ranks) *
                  transfer::DiskPool::file_bytes(
                      1, {.layers = layout.layers(), .layer_bytes = layout.layer_bytes()});
    page.slice_bytes =
        transfer::DiskPool::file_bytes(1, {.layers = 1, .layer_bytes = layout.layer_bytes()});
  }
  return page;
}

}  // namespace hisparse::plan
