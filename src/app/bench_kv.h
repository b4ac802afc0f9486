// Seeded random KV rows for `hisparse bench --inject-kv`.
#pragma once

#include <cstdint>

#include "engine/kv_source.h"

namespace hisparse::app {

// Every value is even in [-1, 1) and follows from the seed, the token, its position, layer, KV head
// and plane: the same on any number of ranks, and whoever asks. Any thread.
class BenchKv final : public engine::KvSource {
 public:
  explicit BenchKv(std::uint64_t seed) : seed_(seed) {}

  void fill(const engine::KvRows& rows) override;

 private:
  const std::uint64_t seed_;
};

}  // namespace hisparse::app
