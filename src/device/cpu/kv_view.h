// Reads a KvPages table: from (sequence slot, token) to the row in memory.
#pragma once

#include <algorithm>
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

  // Calls body(first row of keys, first row of values, rows) for the part of tokens
  // [first, first + count) that lies in each page; the rows of a part are neighbours in memory.
  template <typename Body>
  void for_parts(std::int32_t slot, std::int64_t first, std::int64_t count,
                 const Body& body) const {
    while (count > 0) {
      const std::int64_t in_page = first % pages_.page_tokens;
      const std::int64_t rows = std::min(count, pages_.page_tokens - in_page);
      const std::byte* base = page(slot, first / pages_.page_tokens) + in_page * row_bytes();
      body(base + pages_.k_offset, base + pages_.v_offset, rows);
      first += rows;
      count -= rows;
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
