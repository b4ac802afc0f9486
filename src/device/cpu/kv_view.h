// Reads a KvPages table: from (sequence slot, token) to the row in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "device/cpu/cpu_memory.h"
#include "device/operators.h"

namespace hisparse::device::cpu {

// A value; valid while the table is.
class KvView final {
 public:
  explicit KvView(const KvPages& pages) : pages_(pages), addresses_(pointer_to(pages.addresses)) {
    HS_CHECK(pages.dtype == base::DType::kF32 || pages.dtype == base::DType::kBF16);
    HS_CHECK(pages.page_tokens > 0 && pages.kv_heads > 0 && pages.head_dim > 0);
  }

  std::int64_t head_bytes() const {
    return std::int64_t{pages_.head_dim} * base::block_shape(pages_.dtype).bytes;
  }
  std::int64_t row_bytes() const { return pages_.kv_heads * head_bytes(); }

  // Start of page `page` of a sequence.
  std::byte* page(std::int32_t slot, std::int64_t page) const {
    HS_CHECK(page >= 0 && page < pages_.pages_per_sequence);
    return pointer_at(addresses_[slot * pages_.pages_per_sequence + page]);
  }
  std::byte* k_row(std::int32_t slot, std::int64_t token) const {
    return row(slot, token) + pages_.k_offset;
  }
  std::byte* v_row(std::int32_t slot, std::int64_t token) const {
    return row(slot, token) + pages_.v_offset;
  }

  // Fills k[count] and v[count] with where the rows of one KV head lie, from token `first` on.
  struct HeadRows {
    const void** k;
    const void** v;
  };
  void locate(std::int32_t slot, std::int64_t first, int count, int kv_head,
              const HeadRows& out) const {
    std::int64_t page_index = first / pages_.page_tokens;
    std::int64_t in_page = first % pages_.page_tokens;
    for (int done = 0; done < count; ++page_index, in_page = 0) {
      const std::byte* base = page(slot, page_index) + kv_head * head_bytes();
      for (; done < count && in_page < pages_.page_tokens; ++done, ++in_page) {
        out.k[done] = base + pages_.k_offset + in_page * row_bytes();
        out.v[done] = base + pages_.v_offset + in_page * row_bytes();
      }
    }
  }

 private:
  std::byte* row(std::int32_t slot, std::int64_t token) const {
    HS_CHECK(token >= 0);
    return page(slot, token / pages_.page_tokens) + token % pages_.page_tokens * row_bytes();
  }

  const KvPages& pages_;
  const std::uint64_t* addresses_;
};

}  // namespace hisparse::device::cpu
