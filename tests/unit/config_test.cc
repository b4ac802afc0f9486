// Command line, environment and YAML file: who wins, and what is refused in which words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/unit/config_fixture.h"

namespace hisparse::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Parses beside a YAML file; the environment of the caller is kept out.
class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::string> inherited;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      if (text.starts_with("HISPARSE_")) inherited.push_back(text.substr(0, text.find('=')));
    }
    for (const std::string& name : inherited) unsetenv(name.c_str());
  }
  void TearDown() override { std::filesystem::remove(path); }

  // Parses `serve` with this file, and these arguments behind it.
  Parsed with_yaml(const std::string& text, const std::vector<std::string>& more = {}) {
    std::ofstream(path) << text;
    std::vector<std::string> arguments{"--config", path};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return serve(arguments);
  }

  const std::string path = testing::TempDir() + "hisparse_config_" + std::to_string(getpid()) +
                           "_" + testing::UnitTest::GetInstance()->current_test_info()->name() +
                           ".yaml";
};

TEST_F(ConfigTest, AnUnsetOptionHasItsDefault) {
  const Parsed parsed = serve({});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.settings().command, Command::kServe);
  EXPECT_EQ(parsed.engine().model, "m.gguf");
  EXPECT_EQ(parsed.engine().max_num_seqs, EngineSettings().max_num_seqs);
  EXPECT_TRUE(parsed.engine().enable_prefix_caching);
  EXPECT_EQ(parsed.serve().host, "127.0.0.1");
  EXPECT_EQ(parsed.serve().port, 8000);
  EXPECT_THAT(parsed.serve().api_key, IsEmpty());
  EXPECT_THAT(parsed.errors, IsEmpty());
}

TEST_F(ConfigTest, TheModelMayStandAloneAsVllmUsersTypeIt) {
  const Parsed parsed = parse({"serve", "folder/model", "--port", "81"});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.engine().model, "folder/model");
  EXPECT_EQ(parsed.serve().port, 81);
}

TEST_F(ConfigTest, AFlagWinsOverTheEnvironmentOverYamlOverTheDefault) {
  const std::string yaml = "port: 3003\nblock-size: 48\nmax-num-seqs: 7\n";
  const ScopedEnv port("HISPARSE_PORT", "2002");
  const ScopedEnv block_size("HISPARSE_BLOCK_SIZE", "32");
  const Parsed parsed = with_yaml(yaml, {"--port", "1001"});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.serve().port, 1001);
  EXPECT_EQ(parsed.engine().block_size, 32);
  EXPECT_EQ(parsed.engine().max_num_seqs, 7);
  EXPECT_EQ(parsed.engine().max_preemptions, EngineSettings().max_preemptions);
}

TEST_F(ConfigTest, TheFlagWinsWhereverTheConfigFileStands) {
  std::ofstream(path) << "port: 3003\n";
  EXPECT_EQ(serve({"--port", "1001", "--config", path}).serve().port, 1001);
  EXPECT_EQ(serve({"--config", path, "--port", "1001"}).serve().port, 1001);
}

TEST_F(ConfigTest, TheConfigFileMayBeNamedByTheEnvironment) {
  std::ofstream(path) << "port: 3003\n";
  const ScopedEnv config("HISPARSE_CONFIG", path);
  EXPECT_EQ(serve({}).serve().port, 3003);
}

TEST_F(ConfigTest, EnvironmentNamesAreUppercaseWithUnderscores) {
  const ScopedEnv model("HISPARSE_MODEL", "from_env.gguf");
  const ScopedEnv length("HISPARSE_MAX_MODEL_LEN", "4096");
  const ScopedEnv dtype("HISPARSE_KV_CACHE_DTYPE", "f32");
  const ScopedEnv caching("HISPARSE_ENABLE_PREFIX_CACHING", "false");
  const ScopedEnv key("HISPARSE_API_KEY", "secret");
  const ScopedEnv lower("hisparse_port", "81");
  const Parsed parsed = parse({"serve"});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.engine().model, "from_env.gguf");
  EXPECT_EQ(parsed.engine().max_model_len, 4096);
  EXPECT_EQ(parsed.engine().kv_cache_dtype, DTypeChoice::kF32);
  EXPECT_FALSE(parsed.engine().enable_prefix_caching);
  EXPECT_THAT(parsed.serve().api_key, ElementsAre("secret"));
  EXPECT_EQ(parsed.serve().port, 8000);
}

TEST_F(ConfigTest, TheEnvironmentIsCheckedLikeAFlag) {
  const ScopedEnv seats("HISPARSE_MAX_NUM_SEQS", "0");
  expect_usage_error(serve({}), "max-num-seqs");
}

TEST_F(ConfigTest, AnUnknownFlagIsRefusedWithTheNearestOne) {
  expect_usage_error(serve({"--prot", "81"}), "unknown argument '--prot' (did you mean --port?)");
  expect_usage_error(serve({"--max-num-seq=3"}), "(did you mean --max-num-seqs?)");
  const Parsed far = serve({"--completely-different-thing"});
  expect_usage_error(far, "unknown argument '--completely-different-thing'");
  EXPECT_THAT(far.errors, Not(HasSubstr("did you mean")));
}

TEST_F(ConfigTest, FlagsOfAnotherCommandAreUnknown) {
  expect_usage_error(serve({"--prompt", "hi"}), "unknown argument '--prompt'");
  expect_usage_error(parse({"generate", "m.gguf", "--prompt", "hi", "--api-key", "k"}),
                     "unknown argument '--api-key'");
}

TEST_F(ConfigTest, HelpIsPrintedAndEndsWithCodeZero) {
  const Parsed top = parse({"--help"});
  EXPECT_EQ(top.exit_code(), 0);
  EXPECT_THAT(top.out, HasSubstr("serve"));
  EXPECT_THAT(top.out, HasSubstr("generate"));
  EXPECT_THAT(top.errors, IsEmpty());
  const Parsed of_serve = parse({"serve", "--help"});
  EXPECT_EQ(of_serve.exit_code(), 0);
  EXPECT_THAT(of_serve.out, HasSubstr("--max-num-queued-reqs"));
  EXPECT_THAT(of_serve.out, HasSubstr("HISPARSE_PORT"));
}

TEST_F(ConfigTest, ACommandIsRequiredAndMustBeKnown) {
  EXPECT_EQ(parse({}).exit_code(), kUsageError);
  EXPECT_EQ(parse({"srve"}).exit_code(), kUsageError);
  const Parsed version = parse({"version"});
  ASSERT_TRUE(version.ok());
  EXPECT_EQ(version.settings().command, Command::kVersion);
}

// The variables of one command must not trip another.
TEST_F(ConfigTest, TheEnvironmentIsReadOnlyForTheChosenCommand) {
  const ScopedEnv prompt("HISPARSE_TEMPERATURE", "hot");
  EXPECT_TRUE(serve({}).ok());
  expect_usage_error(parse({"generate", "m.gguf", "--prompt", "hi"}), "--temperature");
}

TEST_F(ConfigTest, AnEmptyApiKeyIsRefused) {
  expect_usage_error(serve({"--api-key", ""}), "--api-key must not be empty");
}

TEST_F(ConfigTest, AMissingModelIsNamed) {
  expect_usage_error(parse({"serve"}), "--model is required");
  expect_usage_error(parse({"generate", "--prompt", "hi"}), "--model is required");
}

TEST_F(ConfigTest, GenerateNeedsAPrompt) {
  expect_usage_error(parse({"generate", "m.gguf"}), "--prompt is required");
  const Parsed parsed = parse({"generate", "m.gguf", "--prompt", "hi", "--raw", "--stop", "a",
                               "--stop", "b", "--seed", "18446744073709551615"});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.settings().command, Command::kGenerate);
  const GenerateSettings& generate = parsed.settings().generate;
  EXPECT_EQ(generate.engine.model, "m.gguf");
  EXPECT_EQ(generate.prompt, "hi");
  EXPECT_TRUE(generate.raw);
  EXPECT_THAT(generate.stop, ElementsAre("a", "b"));
  EXPECT_EQ(generate.seed, 18446744073709551615U);
}

TEST_F(ConfigTest, AStepMustHoldATokenOfEveryRunningRequest) {
  expect_usage_error(serve({"--max-num-batched-tokens", "7", "--max-num-seqs", "8"}),
                     "--max-num-batched-tokens must be at least --max-num-seqs");
  EXPECT_TRUE(serve({"--max-num-batched-tokens", "8", "--max-num-seqs", "8"}).ok());
  // Also when each comes from another place.
  expect_usage_error(with_yaml("max-num-batched-tokens: 4\n"),
                     "--max-num-batched-tokens must be at least --max-num-seqs");
}

TEST_F(ConfigTest, NumbersOutOfRangeAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"--max-model-len", "-1"},
      {"--max-model-len", "16777217"},
      {"--max-num-seqs", "0"},
      {"--max-num-seqs", "4097"},
      {"--max-num-batched-tokens", "0"},
      {"--block-size", "0"},
      {"--block-size", "1025"},
      {"--max-preemptions", "-1"},
      {"--tensor-parallel-size", "0"},
      {"--tensor-parallel-size", "65"},
      {"--threads", "-1"},
      {"--port", "65536"},
      {"--port", "-1"},
      {"--port", "http"},
      {"--http-threads", "0"},
      {"--max-body-bytes", "1023"},
      {"--max-body-bytes", "2GiB"},
      {"--max-num-queued-reqs", "0"},
      {"--shutdown-timeout", "-1"},
      {"--max-num-seqs", "3.5"},
      {"--dtype", "f16"},
      {"--kv-cache-dtype", "int8"},
      {"--cpu-isa", "avx2"},
      {"--kv-cache-memory-bytes", "-1"},
  };
  for (const auto& [flag, value] : bad) expect_usage_error(serve({flag + "=" + value}), flag);
}

TEST_F(ConfigTest, TheEndsOfARangeAreInIt) {
  const Parsed parsed =
      serve({"--max-model-len=16777216", "--max-num-seqs=4096", "--max-num-batched-tokens=4096",
             "--block-size=1024", "--max-preemptions=0", "--tensor-parallel-size=64",
             "--port=65535", "--max-body-bytes=1024"});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.engine().max_model_len, 16777216);
  EXPECT_EQ(parsed.serve().port, 65535);
  EXPECT_EQ(parsed.serve().max_body_bytes, 1024);
}

TEST_F(ConfigTest, ByteSizesTakeUnits) {
  const auto size = [](const std::string& text) {
    const Parsed parsed = serve({"--kv-cache-memory-bytes=" + text});
    EXPECT_TRUE(parsed.ok()) << text << ": " << parsed.errors;
    return parsed.ok() ? parsed.engine().kv_cache_memory_bytes : -1;
  };
  EXPECT_EQ(size("12345"), 12345);
  EXPECT_EQ(size("4GiB"), std::int64_t{4} << 30);
  EXPECT_EQ(size("3MiB"), 3 << 20);
  EXPECT_EQ(size("2KiB"), 2048);
  EXPECT_EQ(size("2kB"), 2000);
  EXPECT_EQ(size("1GB"), 1000000000);
  expect_usage_error(serve({"--kv-cache-memory-bytes=4GiBs"}), "--kv-cache-memory-bytes");
  expect_usage_error(serve({"--kv-cache-memory-bytes=99999999EiB"}), "--kv-cache-memory-bytes");
  expect_usage_error(serve({"--kv-cache-memory-bytes=9EiB"}), "--kv-cache-memory-bytes");
}

TEST_F(ConfigTest, ByteSizesTakeUnitsInYamlAndInTheEnvironment) {
  const ScopedEnv body("HISPARSE_MAX_BODY_BYTES", "1MiB");
  const Parsed parsed = with_yaml("kv-cache-memory-bytes: 2GiB\n");
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.engine().kv_cache_memory_bytes, std::int64_t{2} << 30);
  EXPECT_EQ(parsed.serve().max_body_bytes, 1 << 20);
}

TEST_F(ConfigTest, DtypesHaveTheirLongNames) {
  EXPECT_EQ(serve({"--dtype", "float32"}).engine().dtype, DTypeChoice::kF32);
  EXPECT_EQ(serve({"--dtype", "bfloat16"}).engine().dtype, DTypeChoice::kBF16);
  EXPECT_EQ(serve({"--dtype", "bf16"}).engine().dtype, DTypeChoice::kBF16);
  EXPECT_EQ(serve({"--dtype", "int8"}).engine().dtype, DTypeChoice::kInt8);
  EXPECT_EQ(serve({"--dtype", "auto"}).engine().dtype, DTypeChoice::kAuto);
  EXPECT_EQ(serve({"--cpu-isa", "x86-64-v3"}).engine().cpu_isa, base::IsaChoice::kX86_64V3);
}

TEST_F(ConfigTest, PrefixCachingIsASwitchWithAnOpposite) {
  EXPECT_FALSE(serve({"--no-enable-prefix-caching"}).engine().enable_prefix_caching);
  EXPECT_TRUE(serve({"--enable-prefix-caching"}).engine().enable_prefix_caching);
  EXPECT_FALSE(serve({"--enable-prefix-caching=false"}).engine().enable_prefix_caching);
}

TEST_F(ConfigTest, SwitchesInYamlAreTrueOrFalse) {
  EXPECT_FALSE(with_yaml("enable-prefix-caching: false\n").engine().enable_prefix_caching);
  EXPECT_TRUE(with_yaml("enable-prefix-caching: true\n").engine().enable_prefix_caching);
  EXPECT_FALSE(with_yaml("no-enable-prefix-caching: true\n").engine().enable_prefix_caching);
  EXPECT_TRUE(with_yaml("enable-prefix-caching: false\n", {"--enable-prefix-caching"})
                  .engine()
                  .enable_prefix_caching);
  expect_usage_error(with_yaml("port: 81\nenable-prefix-caching: perhaps\n"), path + ":2: ");
}

TEST_F(ConfigTest, AnUnknownYamlKeyIsNamedWithFileAndLine) {
  expect_usage_error(with_yaml("port: 81\n\nmax_num_seqs: 4\n"),
                     path + ":3: unknown key 'max_num_seqs'");
  expect_usage_error(with_yaml("config: other.yaml\n"), path + ":1: unknown key 'config'");
  expect_usage_error(with_yaml("help: true\n"), path + ":1: unknown key 'help'");
}

TEST_F(ConfigTest, AYamlValueIsCheckedLikeAFlag) {
  expect_usage_error(with_yaml("port: 81\nmax-num-seqs: 0\n"), path + ":2: ");
  expect_usage_error(with_yaml("max-num-seqs: many\n"), "max-num-seqs");
  expect_usage_error(with_yaml("dtype: f16\n"), path + ":1: ");
}

TEST_F(ConfigTest, AYamlListWhereOneValueBelongsIsRefused) {
  expect_usage_error(with_yaml("host: a\nport: [81, 82]\n"), path + ":2: ");
  expect_usage_error(with_yaml("port: []\n"), path + ":1: ");
  expect_usage_error(with_yaml("api-key: []\n"), path + ":1: ");
  for (const char* list : {"[]", "[true]", "[true, false]"}) {
    expect_usage_error(with_yaml(std::string("enable-prefix-caching: ") + list + "\n"),
                       path + ":1: 'enable-prefix-caching' takes true or false");
  }
}

TEST_F(ConfigTest, AYamlListGoesToAnOptionThatTakesSeveralValues) {
  EXPECT_THAT(with_yaml("api-key: [one, two]\n").serve().api_key, ElementsAre("one", "two"));
  EXPECT_THAT(with_yaml("api-key: one\n").serve().api_key, ElementsAre("one"));
  EXPECT_THAT(with_yaml("api-key: [one, two]\n", {"--api-key", "three"}).serve().api_key,
              ElementsAre("three"));
}

TEST_F(ConfigTest, YamlOfAnotherShapeIsRefused) {
  expect_usage_error(with_yaml("serve:\n  port: 81\n"), path + ":1: unknown key 'serve'");
  expect_usage_error(with_yaml("port:\n  number: 81\n"),
                     path + ":1: 'port' takes a value or a list of values");
  expect_usage_error(with_yaml("port:\n"), path + ":1: 'port' takes a value");
  expect_usage_error(with_yaml("api-key:\n- [one]\n"), path + ":2: 'api-key' takes plain values");
  expect_usage_error(with_yaml("[a, b]: 1\n"), path + ":1: a key must be an option's name");
  expect_usage_error(with_yaml("port: 81\nport: 82\n"), path + ":2: 'port' is there twice");
  expect_usage_error(with_yaml("- port\n"), path + ": the file must hold 'option: value' lines");
}

TEST_F(ConfigTest, AFileThatIsNoYamlOrIsNotThereIsNamed) {
  expect_usage_error(with_yaml("port: [81\n"), path + ": ");
  expect_usage_error(serve({"--config", path + ".absent"}), path + ".absent");
}

TEST_F(ConfigTest, AnEmptyYamlFileSetsNothing) {
  const Parsed parsed = with_yaml("# only a comment\n");
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.serve().port, 8000);
}

Parsed bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"bench", "--model", "m.gguf"});
  return parse(std::move(arguments));
}

TEST_F(ConfigTest, BenchHasDefaultsOfItsOwn) {
  const Parsed parsed = bench({});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.settings().command, Command::kBench);
  const BenchSettings& settings = parsed.settings().bench;
  EXPECT_THAT(settings.batch_sizes, ElementsAre(1, 8, 32));
  EXPECT_THAT(settings.input_lens, IsEmpty());
  EXPECT_EQ(settings.output_len, 128);
  EXPECT_EQ(settings.num_iters, 3);
  EXPECT_FALSE(settings.engine.enable_prefix_caching);
  EXPECT_EQ(settings.engine.max_num_seqs, 32);
  EXPECT_TRUE(bench({"--enable-prefix-caching"}).settings().bench.engine.enable_prefix_caching);
}

TEST_F(ConfigTest, TheLargestBatchOfABenchRunsAtOnce) {
  const Parsed parsed = bench({"--batch-sizes", "4,50,7"});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.settings().bench.engine.max_num_seqs, 50);
  expect_usage_error(bench({"--batch-sizes", "600"}),
                     "--max-num-batched-tokens must be at least the largest of --batch-sizes");
}

TEST_F(ConfigTest, AListIsSplitAtCommasAndDoesNotSwallowTheModel) {
  const Parsed parsed =
      parse({"bench", "--batch-sizes", "1,2", "m.gguf", "--input-lens=16", "--input-lens", "7500"});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_EQ(parsed.settings().bench.engine.model, "m.gguf");
  EXPECT_THAT(parsed.settings().bench.batch_sizes, ElementsAre(1, 2));
  EXPECT_THAT(parsed.settings().bench.input_lens, ElementsAre(16, 7500));
}

TEST_F(ConfigTest, AListMayStandInYamlOrInTheEnvironment) {
  std::ofstream(path) << "input-lens: [16, 32]\nbatch-sizes: 5,6\nnum-iters: 2\n";
  const ScopedEnv lengths("HISPARSE_BATCH_SIZES", "3,4");
  const Parsed parsed = bench({"--config", path});
  ASSERT_TRUE(parsed.ok()) << parsed.errors;
  EXPECT_THAT(parsed.settings().bench.batch_sizes, ElementsAre(3, 4));
  EXPECT_THAT(parsed.settings().bench.input_lens, ElementsAre(16, 32));
  EXPECT_EQ(parsed.settings().bench.num_iters, 2);
  EXPECT_EQ(parsed.settings().bench.engine.max_num_seqs, 4);
}

TEST_F(ConfigTest, ABenchThatCannotBeIsRefused) {
  expect_usage_error(parse({"bench"}), "--model is required");
  expect_usage_error(bench({"--batch-sizes", "0"}), "--batch-sizes");
  expect_usage_error(bench({"--batch-sizes", "1,x"}), "--batch-sizes");
  expect_usage_error(bench({"--batch-sizes", "1,5000"}), "--batch-sizes");
  expect_usage_error(bench({"--input-lens", "0"}), "--input-lens");
  expect_usage_error(bench({"--output-len", "0"}), "--output-len");
  expect_usage_error(bench({"--num-iters", "0"}), "--num-iters");
  expect_usage_error(bench({"--max-num-seqs", "4"}), "unknown argument '--max-num-seqs'");
}

TEST_F(ConfigTest, ABenchLongerThanTheModelLengthSaysWhatFits) {
  const std::vector<std::string> lengths = {"--max-model-len", "1000", "--output-len", "100",
                                            "--input-lens"};
  const auto with = [&lengths](const std::string& input) {
    std::vector<std::string> arguments = lengths;
    arguments.push_back(input);
    return bench(arguments);
  };
  EXPECT_TRUE(with("900").ok());
  expect_usage_error(with("10,901"), "a prompt may have 900 tokens");
  expect_usage_error(bench({"--max-model-len", "128"}), "--output-len 128 leaves no room");
}

TEST_F(ConfigTest, ABenchMayInjectKvRows) {
  EXPECT_FALSE(bench({}).settings().bench.inject_kv);
  EXPECT_TRUE(bench({"--inject-kv"}).settings().bench.inject_kv);
  expect_usage_error(bench({"--inject-kv", "--output-len", "1"}), "--output-len 1 leaves out");
  expect_usage_error(parse({"serve", "--model", "m.gguf", "--inject-kv"}), "unknown argument");
}

TEST_F(ConfigTest, TheJsonOfABenchMayGoToStandardOutput) {
  EXPECT_EQ(bench({"--output-json", "-"}).settings().bench.output_json, "-");
  EXPECT_EQ(bench({"--output-json", "a/b.json"}).settings().bench.output_json, "a/b.json");
}

}  // namespace
}  // namespace hisparse::config
