// HS_CHECK: for our own state only. Never reachable from request content (ARCHITECTURE section 8).
#pragma once

namespace hisparse::base {

// Prints the failed condition and aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace hisparse::base

#define HS_CHECK(condition)                                           \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::hisparse::base::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
