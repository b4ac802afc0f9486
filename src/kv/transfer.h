// The protocol between the LifecycleController and the movers: plan values out, completion messages
// back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "kv/persisted_page.h"

namespace hisparse::kv {

// Where a copy of a block lies, fast to slow. A tier is data, never a subclass.
enum class Tier : std::uint8_t { kResident, kHost, kDisk };
inline constexpr std::size_t kTiers = 3;
inline constexpr Tier kAllTiers[kTiers] = {Tier::kResident, Tier::kHost, Tier::kDisk};

constexpr std::size_t index_of(Tier tier) { return static_cast<std::size_t>(tier); }

constexpr std::string_view name_of(Tier tier) {
  switch (tier) {
    case Tier::kResident:
      return "resident";
    case Tier::kHost:
      return "host";
    case Tier::kDisk:
      return "disk";
  }
  return "unknown";
}

// A slot of a tier.
struct Location {
  Tier tier = Tier::kResident;
  base::SlotId slot;
  bool operator==(const Location&) const = default;
};

// kMirror: copied down early, while there is room. kSpill: copied down because a slot is wanted.
// kRestore: copied up. kExchange: up since it is hot, or down since its slot is wanted for that.
enum class MoveReason : std::uint8_t { kMirror, kSpill, kRestore, kExchange };
inline constexpr std::size_t kMoveReasons = 4;

constexpr std::string_view name_of(MoveReason reason) {
  switch (reason) {
    case MoveReason::kMirror:
      return "mirror";
    case MoveReason::kSpill:
      return "spill";
    case MoveReason::kRestore:
      return "restore";
    case MoveReason::kExchange:
      return "exchange";
  }
  return "unknown";
}

// One page to copy, on every rank. Source and destination are held until its TransferDone has been
// applied.
struct TransferOp {
  base::TransferId id;
  base::BlockId block;
  Location from;
  Location to;
  MoveReason reason = MoveReason::kSpill;
  // What the next process may know of the copy; none if that has no use for it.
  std::shared_ptr<const PersistedPage> persisted = nullptr;
};

// Tells the writes to a disk slot apart, over all processes that keep pages in one folder.
inline std::uint64_t write_number(base::TransferId id) {
  return static_cast<std::uint64_t>(id.value()) + 1;
}

struct TransferPlan {
  std::vector<TransferOp> restores;  // executed first
  std::vector<TransferOp> demotions;
  std::vector<base::SlotId> forgotten;  // of the disk tier: not for the next process

  bool empty() const { return restores.empty() && demotions.empty() && forgotten.empty(); }
};

// A failed transfer frees its destination and may be planned again. It keeps its source, unless the
// status is DataLoss: then what the source holds is not what was written there.
struct TransferDone {
  base::TransferId id;
  absl::Status status;
};

}  // namespace hisparse::kv
