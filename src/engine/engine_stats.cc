#include "engine/engine_stats.h"

#include <algorithm>

namespace hisparse::engine {

void Histogram::observe(double value) {
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
  ++counts[static_cast<std::size_t>(bucket)];
  sum += value;
}

std::vector<double> latency_bounds() {
  return {0.005, 0.01, 0.02, 0.05, 0.1, 0.2,  0.3,  0.5,  0.8,   1.0,
          1.5,   2.0,  2.5,  5.0,  10., 20.0, 30.0, 60.0, 120.0, 480.0};
}

std::vector<double> token_latency_bounds() {
  return {0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
          0.2,   0.3,    0.4,   0.5,    0.75, 1.0,   2.5,  5.0,   10., 40.0};
}

std::vector<double> step_rows_bounds() {
  return {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
}

}  // namespace hisparse::engine
