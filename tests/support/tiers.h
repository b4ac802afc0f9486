// Settings of an engine whose tiers hold so many pages.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "engine/launch.h"
#include "tests/support/test_engine.h"

namespace hisparse::test {

struct TierPages {
  std::int64_t resident = 0;
  std::int64_t host = 0;
  std::int64_t disk = 0;
};

// `base` with tiers: 0 pages switch the host or the disk tier off.
inline config::EngineSettings with_tiers(config::EngineSettings base, const TierPages& pages) {
  constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
  base.kv_tiering = config::KvTiering::kHybrid;
  config::EngineSettings roomy = base;
  roomy.swap_space = 1.0;
  const engine::LaunchPlan plan = plan_of(roomy);
  base.kv_cache_memory_bytes = pages.resident * plan.page_bytes;
  // Half a page more, since it is given in GiB.
  base.swap_space = pages.host == 0 ? 0.0
                                    : (static_cast<double>(pages.host) + 0.5) *
                                          static_cast<double>(plan.page_bytes) / kGibibyte;
  base.kv_disk_space = pages.disk * plan.disk_page_bytes;
  if (pages.disk > 0) base.kv_disk_path = testing::TempDir();
  return base;
}

inline std::int64_t moved(const engine::EngineStats& stats, kv::Tier from, kv::Tier to) {
  return stats.kv.moved[index_of(from)][index_of(to)];
}

// To a faster tier.
inline std::int64_t moved_up(const engine::EngineStats& stats) {
  return moved(stats, kv::Tier::kHost, kv::Tier::kResident) +
         moved(stats, kv::Tier::kDisk, kv::Tier::kResident) +
         moved(stats, kv::Tier::kDisk, kv::Tier::kHost);
}

inline std::int64_t moved_at_all(const engine::EngineStats& stats) {
  std::int64_t pages = 0;
  for (const auto& from : stats.kv.moved) {
    for (const std::int64_t to : from) pages += to;
  }
  return pages;
}

}  // namespace hisparse::test
