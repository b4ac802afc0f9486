// What a page looks like to the movers: layers of bytes.
#pragma once

#include <cstdint>

namespace hisparse::transfer {

// A page on one rank: `layers` slices of `layer_bytes`, one behind the other (kv/cache_group.h).
struct PageShape {
  std::int32_t layers = 0;
  std::int64_t layer_bytes = 0;

  std::int64_t bytes() const { return layers * layer_bytes; }
};

}  // namespace hisparse::transfer
