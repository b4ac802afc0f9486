// Which pages can give room in the resident tier. Internal to kv/.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_set>
#include <vector>

#include "kv/controller_state.h"

namespace hisparse::kv {

// What it costs when a page goes: kProtected are, of the pages in use, the first one (attention
// sinks), the most recent full ones, and what several requests share.
enum class Cost : std::uint8_t { kUnused, kInUse, kProtected };

// The cost classes of a state that stays as it is meanwhile.
class Costs final {
 public:
  explicit Costs(const ControllerState& state);
  Cost of(base::BlockId id, std::int32_t references) const;

 private:
  std::unordered_set<base::BlockId> protected_;
};

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
  // With heat: of `clean` and `dirty` together those that are not protected; nobody uses the first
  // so many.
  std::vector<base::BlockId> exchangeable;
  std::size_t unused = 0;
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
