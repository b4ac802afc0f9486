// What the controller's own memory comes to.
#pragma once

#include <cstdint>

#include "kv/lifecycle_controller.h"

namespace hisparse::kv {

// Whose block tables there can be at a time.
struct TableBounds {
  std::int64_t sequences = 0;
  std::int64_t pages_per_sequence = 0;
};

// Bytes of blocks, slots, index, eviction order, tables, transfers in flight and heat at the most;
// for the ledger. Without the plans under construction, which are as large as a step.
std::int64_t metadata_bytes(const ControllerConfig& config, const TableBounds& bounds);

// The share of it that one slot more of any tier takes.
std::int64_t metadata_bytes_per_slot(const ControllerConfig& config);

}  // namespace hisparse::kv
