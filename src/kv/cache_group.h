// The unit of KV layout: which layers, which kinds of row, how they lie in a page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"

namespace hisparse::kv {

// How a group's rows are spread over the ranks: by KV heads, or the same rows on every rank. (Pages
// owned by one rank join with the models that need them.)
enum class Sharding { kHeads, kReplicated };

// One kind of row: "K" and "V" for grouped-query attention. Bytes of one token in one layer on one
// rank.
struct Plane {
  std::string name;
  std::int64_t row_bytes = 0;
};

// A plain description; ARCHITECTURE section 4.
struct CacheGroup {
  std::string name;
  std::int32_t layers = 0;
  std::vector<Plane> planes;
  Sharding sharding = Sharding::kHeads;
};

// A page of a group on one rank is `[layer][plane][token][row bytes]`, one contiguous range; a slab
// is pages, outermost by slot. All offsets in bytes, 64-bit.
class PageLayout {
 public:
  PageLayout(const CacheGroup& group, std::int32_t page_tokens) : page_tokens_(page_tokens) {
    HS_CHECK(page_tokens > 0);
    for (const Plane& plane : group.planes) {
      plane_offsets_.push_back(layer_bytes_);
      layer_bytes_ += plane.row_bytes * page_tokens;
    }
    layers_ = group.layers;
    page_bytes_ = layer_bytes_ * group.layers;
  }

  std::int32_t page_tokens() const { return page_tokens_; }
  std::int32_t layers() const { return layers_; }
  std::int64_t layer_bytes() const { return layer_bytes_; }
  std::int64_t page_bytes() const { return page_bytes_; }
  std::int64_t offset(std::int32_t layer, std::size_t plane) const {
    return layer * layer_bytes_ + plane_offsets_[plane];
  }

 private:
  std::int32_t page_tokens_;
  std::int32_t layers_ = 0;
  std::int64_t layer_bytes_ = 0;
  std::int64_t page_bytes_ = 0;
  std::vector<std::int64_t> plane_offsets_;
};

}  // namespace hisparse::kv
