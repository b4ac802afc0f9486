// Which pages can give room in the resident tier. Internal to kv/.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_set>
#include <vector>

#include "kv/controller_state.h"

namespace hisparse::kv {

// References of a block as they will be: the plan under construction may have taken or added some.
using ReferenceCount = std::function<std::int32_t(base::BlockId)>;

// Candidates in the order in which they should go. Full pages only, and none that a transfer holds.
struct Reclaimable {
  // Blocks whose resident copy can go at once, since a lower tier holds the page too.
  std::vector<base::BlockId> clean;
  // Blocks of which only the resident copy exists: they can be copied down.
  std::vector<base::BlockId> dirty;
  // Blocks with a copy in host memory and one on disk: the one in host memory can go at once.
  std::vector<base::BlockId> doubled;
  // Cached blocks that are only in lower tiers, children before parents: they can make room there.
  std::vector<base::BlockId> cached_below;
  // Cached blocks that are only resident, children before parents: where nothing can be copied
  // down, they can be given up.
  std::vector<base::BlockId> cached_resident;
  // Cached blocks that are only in closed tiers, children before parents: they give no room and
  // keep their parents, so every plan gives them up.
  std::vector<base::BlockId> worthless;
  std::int64_t lower_free = 0;  // slots below the resident tier

  // Pages that could be copied down.
  std::int64_t lower_room() const {
    return lower_free + static_cast<std::int64_t>(doubled.size() + cached_below.size());
  }
};

// `added`: blocks that will be cached when the plan has been executed, deepest first.
Reclaimable find_reclaimable(const ControllerState& state, const ReferenceCount& references,
                             const std::vector<base::BlockId>& added);

}  // namespace hisparse::kv
