// The KV rows of a model: groups, planes and bytes (reference/models.md 6.2).
#pragma once

#include <cstdint>
#include <vector>

#include "kv/cache_group.h"
#include "plan/geometry.h"

namespace hisparse::plan {

// kFp8: K and V with one scale a matrix; latents as 512 fp8 values with an f32 scale for each 128,
// and the rotated part in bf16 (656 bytes). With kBf16 and kFp8 an index key is 128 fp8 values and
// an f32 scale (132 bytes).
enum class RowType : std::uint8_t { kF32, kBf16, kFp8 };

// kSpills: pages may leave the device while their request runs. kStays: read in full by every step
// (index keys).
enum class Residency : std::uint8_t { kSpills, kStays };

// Whether the MTP layers take part: their weights, their rows and their hot rows.
enum class Mtp : std::uint8_t { kOff, kOn };

struct PlannedGroup {
  kv::CacheGroup group;  // row bytes on one rank
  Residency residency = Residency::kSpills;
};

// Bytes of one token.
struct TokenRows {
  std::int64_t spills = 0;  // on each rank, all layers
  std::int64_t stays = 0;   // on each rank, all layers
  std::int64_t host = 0;    // of what spills, over all ranks: replicated rows once

  std::int64_t rank() const { return spills + stays; }
};

std::vector<PlannedGroup> cache_groups(const ModelGeometry& geometry, std::int32_t ranks,
                                       RowType rows, Mtp mtp);

TokenRows token_rows(const std::vector<PlannedGroup>& groups, std::int32_t ranks);

// Of the pages that spill: one page in the files of the disk tier, over all ranks, and one slice of
// it (a page in one layer on one rank), which is the least that can be read.
struct DiskPage {
  std::int64_t bytes = 0;
  std::int64_t slice_bytes = 0;
};
DiskPage disk_page(const std::vector<PlannedGroup>& groups, std::int32_t ranks,
                   std::int32_t page_tokens);

}  // namespace hisparse::plan
