// A page on disk that the next process may use.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kv/block_key.h"

namespace hisparse::kv {

// What an indexed page is, and where its bytes are. Says all that a hit compares.
struct PersistedPage {
  base::SlotId slot;        // of the disk tier
  std::uint64_t write = 0;  // number of the write that filled the slot (write_number())
  BlockKey root;
  BlockKey parent;         // key of the page before it; the root for the first one
  std::int32_t depth = 0;  // page number in its sequences
  std::vector<base::TokenId> tokens;

  bool operator==(const PersistedPage&) const = default;
};

}  // namespace hisparse::kv
