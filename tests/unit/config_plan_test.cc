// The flags of `hisparse plan`: the engine's mean what they mean for serve, the others its own.
#include <fstream>

#include "tests/unit/config_fixture.h"

namespace hisparse::config {
namespace {

using testing::HasSubstr;
using testing::Not;

Parsed plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"plan", "--model", "config.json"});
  return parse(std::move(arguments));
}

TEST(ConfigPlan, PlansThisMachineUnlessGpusAreNamed) {
  Parsed parsed = parse({"plan", "m.gguf"});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.settings().command, Command::kPlan);
  EXPECT_EQ(parsed.settings().plan.engine.model, "m.gguf");
  EXPECT_TRUE(parsed.settings().plan.on_this_machine());
  EXPECT_EQ(parsed.settings().plan.engine.max_num_seqs, EngineSettings().max_num_seqs);
  EXPECT_FALSE(parsed.settings().plan.json);
  EXPECT_TRUE(plan({"--gpus", "cpu"}).settings().plan.on_this_machine());
  parsed = plan({"--gpus", "8xH200", "--max-model-len", "1000000", "--json"});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_FALSE(parsed.settings().plan.on_this_machine());
  EXPECT_EQ(parsed.settings().plan.engine.max_model_len, 1'000'000);
  EXPECT_TRUE(parsed.settings().plan.json);
}

TEST(ConfigPlan, HostGibStandsForTieringAndSwapSpace) {
  const Parsed parsed = plan({"--gpus", "8xH200", "--host-gib", "384"});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.settings().plan.engine.kv_tiering, KvTiering::kHybrid);
  EXPECT_EQ(parsed.settings().plan.engine.swap_space, 384.0);
  EXPECT_EQ(plan({}).settings().plan.engine.kv_tiering, KvTiering::kOff);
  expect_usage_error(plan({"--host-gib", "1", "--swap-space", "1"}), "--host-gib");
  expect_usage_error(plan({"--host-gib", "nan"}), "--host-gib");
  expect_usage_error(plan({"--host-gib", "-1"}), "--host-gib");
}

TEST(ConfigPlan, TypedHostGibWinsOverTheEnvironmentAndYaml) {
  const std::string yaml = testing::TempDir() + "host_gib_wins.yaml";
  std::ofstream(yaml) << "swap-space: 3\nkv-tiering: off\n";
  const Parsed over_yaml = plan({"--host-gib", "384", "--config", yaml});
  ASSERT_TRUE(over_yaml.ok()) << over_yaml.errors;
  EXPECT_EQ(over_yaml.settings().plan.engine.kv_tiering, KvTiering::kHybrid);
  EXPECT_EQ(over_yaml.settings().plan.engine.swap_space, 384.0);
  const ScopedEnv swap("HISPARSE_SWAP_SPACE", "2");
  const Parsed over_environment = plan({"--host-gib", "384"});
  ASSERT_TRUE(over_environment.ok()) << over_environment.errors;
  EXPECT_EQ(over_environment.settings().plan.engine.swap_space, 384.0);
  // 0 is a size too.
  const Parsed none = plan({"--host-gib", "0", "--kv-tiering", "hybrid", "--kv-disk-path", "/data",
                            "--kv-disk-space", "1GiB"});
  ASSERT_TRUE(none.ok()) << none.errors;
  EXPECT_EQ(none.settings().plan.engine.swap_space, 0.0);
}

TEST(ConfigPlan, WhatIsTypedWinsOverHostGibOfTheEnvironment) {
  const ScopedEnv host("HISPARSE_HOST_GIB", "384");
  EXPECT_EQ(plan({}).settings().plan.engine.swap_space, 384.0);
  const Parsed swap = plan({"--swap-space", "2", "--kv-tiering", "hybrid"});
  ASSERT_TRUE(swap.ok()) << swap.errors;
  EXPECT_EQ(swap.settings().plan.engine.swap_space, 2.0);
  EXPECT_EQ(plan({"--kv-tiering", "off"}).settings().plan.engine.kv_tiering, KvTiering::kOff);
}

TEST(ConfigPlan, HostGibWithoutTiersIsRefused) {
  expect_usage_error(plan({"--kv-tiering", "off", "--host-gib", "8"}), "--kv-tiering off");
}

TEST(ConfigPlan, AShortStepIsHeldOnlyAgainstRequestsThatWereAskedFor) {
  const Parsed parsed = plan({"--gpus", "8xH200", "--max-num-batched-tokens", "4"});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.settings().plan.engine.max_num_batched_tokens, 4);
  expect_usage_error(
      plan({"--gpus", "8xH200", "--max-num-batched-tokens", "4", "--max-num-seqs", "5"}),
      "--max-num-seqs");
  expect_usage_error(plan({"--max-num-batched-tokens", "4"}), "--max-num-seqs");
}

TEST(ConfigPlan, DiskBandwidthIsAssumedUntilSomebodyGivesIt) {
  EXPECT_TRUE(plan({}).settings().plan.disk_gbps_assumed);
  EXPECT_FALSE(plan({"--disk-gbps", "6"}).settings().plan.disk_gbps_assumed);
  const ScopedEnv disk("HISPARSE_DISK_GBPS", "3");
  EXPECT_FALSE(plan({}).settings().plan.disk_gbps_assumed);
}

TEST(ConfigPlan, RowAndWeightTypesMayBeThoseOfGpus) {
  const Parsed parsed =
      plan({"--gpus", "H200", "--kv-cache-dtype", "fp8", "--weight-dtype", "fp8"});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.settings().plan.kv_cache_dtype, PlanDType::kFp8);
  EXPECT_EQ(parsed.settings().plan.weight_dtype, PlanDType::kFp8);
  const Parsed f32 = plan({"--kv-cache-dtype", "f32"});
  ASSERT_TRUE(f32.ok()) << f32.errors;
  EXPECT_EQ(f32.settings().plan.engine.kv_cache_dtype, DTypeChoice::kF32);
}

TEST(ConfigPlan, WhatThisMachineCannotServeNeedsGpus) {
  expect_usage_error(plan({"--kv-cache-dtype", "fp8"}), "--kv-cache-dtype fp8");
  expect_usage_error(plan({"--weight-dtype", "bf16", "--gpus", "cpu"}), "give --gpus");
  expect_usage_error(plan({"--num-speculative-tokens", "3"}), "--num-speculative-tokens");
  expect_usage_error(plan({"--hot-rows", "4096"}), "--hot-rows");
  expect_usage_error(plan({"--gpus", "H200", "--dtype", "bf16"}), "--weight-dtype");
}

TEST(ConfigPlan, TheEnginesRulesHoldHereToo) {
  expect_usage_error(parse({"plan"}), "--model is required");
  expect_usage_error(plan({"--kv-disk-path", "/data", "--kv-disk-space", "1GiB"}),
                     "need --kv-tiering hybrid");
  expect_usage_error(plan({"--max-num-seqs", "600"}), "--max-num-batched-tokens");
  expect_usage_error(plan({"--gpu-memory-utilization", "1.5"}), "--gpu-memory-utilization");
  expect_usage_error(plan({"--disk-gbps", "-1"}), "--disk-gbps");
}

TEST(ConfigPlan, ItsTypesAreNotThoseOfServe) {
  expect_usage_error(serve({"--kv-cache-dtype", "fp8"}), "--kv-cache-dtype");
  EXPECT_THAT(parse({"serve", "--help"}).out, Not(HasSubstr("fp8")));
  EXPECT_THAT(parse({"plan", "--help"}).out, HasSubstr("auto|f32|bf16|fp8"));
}

TEST(ConfigPlan, TheEnvironmentIsReadForItsOwnOptions) {
  const ScopedEnv gpus("HISPARSE_GPUS", "2xH100");
  EXPECT_EQ(plan({}).settings().plan.gpus, "2xH100");
}

}  // namespace
}  // namespace hisparse::config
