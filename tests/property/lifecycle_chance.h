// What the random walk over the LifecycleController draws.
#pragma once

#include <array>
#include <cstdint>
#include <random>

#include "kv/lifecycle_controller.h"
#include "tests/property/lifecycle_model.h"

namespace hisparse::tests {

// One seed: the same calls give the same draws.
class Chance final {
 public:
  explicit Chance(std::uint64_t seed) : seed_(seed), random_(seed) {}

  std::mt19937_64& engine() { return random_; }
  int below(int bound) { return static_cast<int>(random_() % static_cast<std::uint64_t>(bound)); }

  template <typename Values>
  auto one_of(const Values& values) {
    return values[static_cast<std::size_t>(below(static_cast<int>(values.size())))];
  }

  // Draws; sizes of the slab and of pages go by the seed.
  kv::ControllerConfig config() {
    kv::ControllerConfig config;
    config.page_tokens = kPageTokens[seed_ / kPoolSizes.size() % kPageTokens.size()];
    config.resident_slots = kPoolSizes[seed_ % kPoolSizes.size()];
    config.host_slots = one_of(kLowerSizes);
    config.disk_slots = one_of(kLowerSizes);
    config.max_transfers = 1 + below(5);
    if (below(8) == 0) config.prefix_caching = kv::PrefixCaching::kOff;
    if (below(3) == 0) config.mirroring = kv::Mirroring::kEager;
    if (below(2) == 0) config.host_reads = kv::HostReads::kCopied;
    if (below(3) == 0) config.persistence = kv::Persistence::kOn;
    config.heat_window = one_of(kHeatWindows);
    config.replan_tokens = 1 + below(40);
    config.exchange_pages = below(5);
    page_tokens_ = config.page_tokens;
    return config;
  }

  // `count` tokens from `position` of a sequence on; after config().
  Tokens tokens(std::int64_t position, std::int64_t count) {
    Tokens made;
    for (std::int64_t i = 0; i < count; ++i) made.push_back(next_token(position + i));
    return made;
  }

  Tokens prompt() { return tokens(0, below(6 * page_tokens_) + 1); }

 private:
  static constexpr std::array kPoolSizes = {0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 48, 64};
  static constexpr std::array kLowerSizes = {0, 0, 1, 2, 5, 13, 40};
  static constexpr std::array kPageTokens = {1, 2, 4, 16};
  static constexpr std::array kHeatWindows = {0, 1, 7, 64, 1000};

  // Pages of few kinds, so that prompts share prefixes whatever the page size; some odd tokens.
  base::TokenId next_token(std::int64_t position) {
    if (position % page_tokens_ == 0) kind_ = below(3) == 0 ? 1 : 0;
    if (below(40) == 0) return 2;
    return kind_;
  }

  const std::uint64_t seed_;
  std::mt19937_64 random_;
  std::int32_t page_tokens_ = 1;
  base::TokenId kind_ = 0;
};

}  // namespace hisparse::tests
