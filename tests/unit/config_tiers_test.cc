// The flags of the KV tiers: what they mean, and which combinations are refused.
#include "tests/unit/config_fixture.h"

namespace hisparse::config {
namespace {

TEST(ConfigTiers, AreOffUnlessSwitchedOn) {
  const Parsed parsed = serve({});
  EXPECT_EQ(parsed.engine().kv_tiering, KvTiering::kOff);
  EXPECT_FALSE(parsed.engine().kv_eager_mirror);
  EXPECT_FALSE(parsed.engine().kv_disk_persist);
}

TEST(ConfigTiers, TakeTheirSizes) {
  const Parsed parsed =
      serve({"--kv-tiering", "hybrid", "--swap-space", "0.5", "--kv-disk-path", "/data",
             "--kv-disk-space", "100GiB", "--kv-disk-persist", "--kv-eager-mirror",
             "--kv-resident-bytes", "1MiB", "--kv-disk-io", "threads"});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  const EngineSettings& engine = parsed.engine();
  EXPECT_EQ(engine.kv_tiering, KvTiering::kHybrid);
  EXPECT_EQ(engine.swap_space, 0.5);
  EXPECT_EQ(engine.kv_disk_path, "/data");
  EXPECT_EQ(engine.kv_disk_space, std::int64_t{100} << 30);
  EXPECT_EQ(engine.kv_cache_memory_bytes, 1 << 20);
  EXPECT_TRUE(engine.kv_eager_mirror);
  EXPECT_TRUE(engine.kv_disk_persist);
  EXPECT_EQ(engine.kv_disk_io, base::DiskIo::kThreads);
}

TEST(ConfigTiers, HeatHasItsDefaultsAndCanBeSwitchedOff) {
  const Parsed parsed = serve({});
  EXPECT_EQ(parsed.engine().kv_replan_tokens, 100);
  EXPECT_EQ(parsed.engine().kv_cache_profiling_window, 4096);
  const Parsed set = serve({"--kv-replan-tokens", "1", "--kv-cache-profiling-window", "0"});
  ASSERT_TRUE(set.ok()) << set.errors;
  EXPECT_EQ(set.engine().kv_replan_tokens, 1);
  EXPECT_EQ(set.engine().kv_cache_profiling_window, 0);
}

TEST(ConfigTiers, HeatOutOfBoundsIsRefused) {
  expect_usage_error(serve({"--kv-replan-tokens", "0"}), "--kv-replan-tokens");
  expect_usage_error(serve({"--kv-replan-tokens", "1073741825"}), "--kv-replan-tokens");
  expect_usage_error(serve({"--kv-cache-profiling-window", "-1"}), "--kv-cache-profiling-window");
  expect_usage_error(serve({"--kv-cache-profiling-window", "268435457"}),
                     "--kv-cache-profiling-window");
}

TEST(ConfigTiers, CombinationsThatCannotWorkAreRefused) {
  expect_usage_error(serve({"--kv-disk-path", "/data", "--kv-disk-space", "1GiB"}),
                     "need --kv-tiering hybrid");
  expect_usage_error(serve({"--kv-eager-mirror"}), "need --kv-tiering hybrid");
  expect_usage_error(serve({"--kv-disk-io", "threads"}), "need --kv-tiering hybrid");
  expect_usage_error(serve({"--kv-disk-persist"}), "need --kv-tiering hybrid");
  expect_usage_error(serve({"--kv-tiering", "hybrid", "--kv-disk-persist"}), "needs a folder");
  expect_usage_error(serve({"--kv-tiering", "hybrid", "--kv-disk-path", "/data", "--kv-disk-space",
                            "1GiB", "--kv-disk-persist", "--no-enable-prefix-caching"}),
                     "prefix caching");
  expect_usage_error(serve({"--kv-tiering", "hybrid", "--kv-disk-path", "/data"}),
                     "belong together");
  expect_usage_error(serve({"--kv-tiering", "hybrid", "--kv-disk-space", "1GiB"}),
                     "belong together");
  expect_usage_error(serve({"--kv-tiering", "hybrid", "--swap-space", "0"}),
                     "somewhere to put pages");
  expect_usage_error(serve({"--kv-tiering", "hybrid", "--swap-space", "nan"}), "--swap-space");
  expect_usage_error(serve({"--kv-tiering", "hybrid", "--swap-space", "-1"}), "--swap-space");
  expect_usage_error(serve({"--kv-tiering", "always"}), "--kv-tiering");
}

}  // namespace
}  // namespace hisparse::config
