// The unit in which cores share memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hisparse::base {

// Bytes. A constant: the library's value may differ between compilers, and layouts with it.
inline constexpr std::size_t kCacheLine = 64;

// Asks for all lines of [begin, begin + bytes) at once. It need not be memory that is there.
inline void fetch_lines(const void* begin, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const char* line = static_cast<const char*>(begin) - address % kCacheLine;
  for (const char* end = static_cast<const char*>(begin) + bytes; line < end; line += kCacheLine) {
    __builtin_prefetch(line);
  }
}

}  // namespace hisparse::base
