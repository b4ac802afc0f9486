// Host memory for unbuffered file access.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "base/check.h"

namespace hisparse::transfer {

// Offsets, sizes and addresses of unbuffered file access are multiples of this.
inline constexpr std::size_t kFileAlignment = 4096;

// Owns its bytes, aligned to kFileAlignment, zero at first.
class AlignedBuffer final {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t bytes)
      : bytes_(bytes),
        memory_(static_cast<std::byte*>(std::aligned_alloc(kFileAlignment, round_up(bytes)))) {
    HS_CHECK(memory_ != nullptr);
    std::fill_n(memory_.get(), bytes, std::byte{});
  }

  std::span<std::byte> bytes() const { return {memory_.get(), bytes_}; }

  static constexpr std::size_t round_up(std::size_t bytes) {
    return (bytes + kFileAlignment - 1) / kFileAlignment * kFileAlignment;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace hisparse::transfer
