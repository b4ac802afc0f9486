// The protocol between the LifecycleController and the movers: plan values out, completion messages
// back.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace hisparse::kv {

// Where a copy of a block lies, fast to slow. Lower tiers join as further values; a tier is data,
// never a subclass.
enum class Tier : std::uint8_t { kResident };
inline constexpr std::size_t kTiers = 1;

constexpr std::string_view name_of(Tier tier) {
  switch (tier) {
    case Tier::kResident:
      return "resident";
  }
  return "unknown";
}

// One page to copy. Source and destination are held until its TransferDone has been applied.
struct TransferOp {
  base::TransferId id;
  base::BlockId block;
  Tier from = Tier::kResident;
  Tier to = Tier::kResident;
  base::SlotId source;
  base::SlotId destination;
};

struct TransferPlan {
  std::vector<TransferOp> restores;  // executed first
  std::vector<TransferOp> demotions;
};

// A failed transfer frees its destination, keeps its source and may be planned again.
struct TransferDone {
  base::TransferId id;
  absl::Status status;
};

}  // namespace hisparse::kv
