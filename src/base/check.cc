#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace hisparse::base {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: internal check failed: %s\n", file, line, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace hisparse::base
