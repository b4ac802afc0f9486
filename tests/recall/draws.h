// Random values of the recall fixture: one counter-based stream for each purpose, so that changing
// one part of the fixture leaves the others as they are.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

#include "base/philox.h"

namespace hisparse::test {

// The stream `stream` of a seed.
class Draws final {
 public:
  Draws(std::uint64_t seed, std::uint64_t stream) : key_(seed ^ (stream * kGoldenRatio)) {}

  double uniform() { return base::philox_uniform(key_, counter_++); }  // [0, 1)
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(uniform() * static_cast<double>(limit));
  }
  double normal() {  // Box and Muller
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }
  // Of length one, in a direction that is equally likely everywhere.
  std::vector<double> direction(std::size_t size) {
    std::vector<double> values(size);
    double squares = 0.0;
    for (double& value : values) {
      value = normal();
      squares += value * value;
    }
    for (double& value : values) value /= std::sqrt(squares);
    return values;
  }
  template <typename T>
  void shuffle(std::span<T> values) {
    for (std::size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1],
                values[static_cast<std::size_t>(below(static_cast<std::int64_t>(i)))]);
    }
  }

 private:
  static constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15u;
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace hisparse::test
