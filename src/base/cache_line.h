#pragma once

#include <cstddef>

namespace hisparse::base {

// What cores hand to each other at a time. A constant: the library's value may differ between
// compilers, and layouts with it.
inline constexpr std::size_t kCacheLine = 64;

}  // namespace hisparse::base
