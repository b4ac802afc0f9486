// What `hisparse plan` prints: the plans of GPUs, and the flags that it suggests.
#include <algorithm>
#include <sstream>

#include "app/plan_build.h"
#include "config/command_line.h"
#include "nlohmann/json.hpp"
#include "tests/unit/plan_fixture.h"

namespace hisparse::app {
namespace {

using nlohmann::json;
using plan::Fields;
using testing::HasSubstr;

config::PlanSettings settings_of(const std::vector<std::string>& arguments) {
  std::vector<const char*> pointers = {"hisparse", "plan", "--model", "models/glm/config.json"};
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  std::ostringstream out;
  std::ostringstream errors;
  const auto parsed = config::parse_command_line(pointers, out, errors);
  EXPECT_EQ(errors.str(), "");
  const auto* settings = std::get_if<config::Settings>(&parsed);
  return settings == nullptr ? config::PlanSettings() : settings->plan;
}

absl::StatusOr<PlanReport> try_report(const Fields& fields,
                                      const std::vector<std::string>& arguments) {
  return report_gpus(settings_of(arguments), plan::geometry(fields));
}

PlanReport report(const Fields& fields, const std::vector<std::string>& arguments) {
  absl::StatusOr<PlanReport> result = try_report(fields, arguments);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : PlanReport();
}

const std::vector<std::string> kFlagship = {"--gpus",  "8xH200",     "--max-model-len",
                                            "1000000", "--host-gib", "384"};

TEST(PlanReport, TheFlagshipPlanHasTheReferenceFigures) {
  const json plan = json::parse(render_plan_json(report(plan::glm_5_3(), kFlagship)));
  EXPECT_EQ(plan["measured"], false);
  EXPECT_EQ(plan["kv"]["bytes_per_token_rank"], 53'940);
  EXPECT_EQ(plan["kv"]["hot_rows"], 4096);
  EXPECT_EQ(plan["kv"]["host_bytes"], std::int64_t{384} << 30);
  EXPECT_EQ(plan["machine"]["name"], "8xH200");
  EXPECT_EQ(plan["machine"]["ranks"], 8);
  EXPECT_EQ(plan["contexts"].back()["tokens"], 1'000'000);
  EXPECT_EQ(plan["contexts"].back()["limit"], "host memory");
  EXPECT_EQ(plan["contexts"].back()["requests"], 8);
  EXPECT_EQ(plan["memory"]["scope"], "each_device");
  std::int64_t sum = 0;
  for (const auto& [owner, bytes] : plan["memory"]["owners"].items()) {
    sum += bytes.get<std::int64_t>();
  }
  EXPECT_EQ(sum, plan["memory"]["limit_bytes"].get<std::int64_t>());
  EXPECT_FALSE(plan["not_in_this_build"].empty());
  EXPECT_EQ(plan["miss_costs"].size(), 14u);
}

TEST(PlanReport, DraftTokensBringTheMtpLayer) {
  std::vector<std::string> arguments = kFlagship;
  arguments.insert(arguments.end(), {"--num-speculative-tokens", "3"});
  const json plan = json::parse(render_plan_json(report(plan::glm_5_3(), arguments)));
  EXPECT_EQ(plan["kv"]["bytes_per_token_rank"], 54'728);
  EXPECT_EQ(plan["kv"]["hot_rows"], 5 * 2048);
  EXPECT_EQ(plan["model"]["mtp_layers"], 1);
}

// --kv-cache-memory-bytes is over all ranks, as in serve.
TEST(PlanReport, TheAssumedSlabGivesTheReferenceTable) {
  const PlanReport plan =
      report(plan::glm_5_3(), {"--gpus", "8xH200", "--kv-cache-memory-bytes", "240GiB"});
  EXPECT_EQ(plan.budget.device, std::int64_t{30} << 30);
  EXPECT_NEAR(plan.contexts.front().device_limit, 107, 0.5);
  EXPECT_NEAR(plan.contexts.back().resident, 0.57, 0.005);
}

TEST(PlanReport, TheTableSaysWhatItIs) {
  const std::string text = render_plan(report(plan::glm_5_3(), kFlagship));
  EXPECT_THAT(text, HasSubstr("nothing is measured"));
  EXPECT_THAT(text, HasSubstr("Not in this build: CUDA"));
  EXPECT_THAT(text, HasSubstr("latent 656 x 78 layers, the same on every rank"));
  EXPECT_THAT(text, HasSubstr("index_key 132 x 21 layers"));
  EXPECT_THAT(text, HasSubstr("8 (8 spilled)"));
}

// Each suggested flag exists and takes the value: `serve` parses the whole line.
TEST(PlanReport, SuggestedFlagsAreFlagsOfServe) {
  const std::vector<std::pair<Fields, std::vector<std::string>>> cases = {
      {plan::glm_5_3(), kFlagship},
      {plan::glm_5_3(),
       {"--gpus", "8xH200", "--kv-tiering", "hybrid", "--swap-space", "0.5", "--kv-disk-path",
        "/data", "--kv-disk-space", "2TiB", "--kv-eager-mirror", "--kv-cache-dtype", "bf16"}},
      {plan::qwen2_72b(), {"--gpus", "8xH100", "--max-model-len", "512"}},
      {plan::glm_4_6(), {"--gpus", "8xH200", "--kv-cache-dtype", "f32"}}};
  for (const auto& [fields, arguments] : cases) {
    const PlanReport plan = report(fields, arguments);
    std::vector<std::string> words = {"hisparse", "serve"};
    for (const std::string& flag : plan.flags) {
      std::istringstream stream(flag);
      for (std::string word; stream >> word;) words.push_back(word);
    }
    std::vector<const char*> pointers;
    for (const std::string& word : words) pointers.push_back(word.c_str());
    std::ostringstream out;
    std::ostringstream errors;
    const auto parsed = config::parse_command_line(pointers, out, errors);
    EXPECT_EQ(errors.str(), "");
    ASSERT_TRUE(std::holds_alternative<config::Settings>(parsed));
    const config::EngineSettings& engine = std::get<config::Settings>(parsed).serve.engine;
    EXPECT_EQ(engine.max_model_len, plan.max_model_len);
    EXPECT_EQ(engine.kv_cache_memory_bytes, plan.budget.device * plan.ranks);
    EXPECT_EQ(engine.tensor_parallel_size, plan.ranks);
  }
}

// The settings that `serve` makes of the suggested flags.
config::EngineSettings served(const PlanReport& plan) {
  std::vector<std::string> words = {"hisparse", "serve"};
  for (const std::string& flag : plan.flags) {
    const std::size_t blank = flag.find(' ');
    words.push_back(flag.substr(0, blank));
    if (blank != std::string::npos) words.push_back(flag.substr(blank + 1));
  }
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  std::ostringstream out;
  std::ostringstream errors;
  const auto parsed = config::parse_command_line(pointers, out, errors);
  EXPECT_EQ(errors.str(), "");
  const auto* settings = std::get_if<config::Settings>(&parsed);
  return settings == nullptr ? config::EngineSettings() : settings->serve.engine;
}

TEST(PlanReport, SuggestedFlagsKeepWhatDiffersFromTheDefaults) {
  const PlanReport plan = report(
      plan::glm_5_3(), {"--gpus", "8xH200", "--kv-tiering", "hybrid", "--kv-disk-path",
                        "/my data/it's", "--kv-disk-space", "2TiB", "--no-enable-prefix-caching",
                        "--kv-disk-io", "threads", "--kv-replan-tokens", "7", "--max-preemptions",
                        "9", "--threads", "5", "--cpu-isa", "x86-64-v3"});
  const config::EngineSettings engine = served(plan);
  EXPECT_EQ(engine.kv_disk_path, "/my data/it's");
  EXPECT_FALSE(engine.enable_prefix_caching);
  EXPECT_EQ(engine.kv_disk_io, base::DiskIo::kThreads);
  EXPECT_EQ(engine.kv_replan_tokens, 7);
  EXPECT_EQ(engine.max_preemptions, 9);
  EXPECT_EQ(engine.threads, 5);
  EXPECT_EQ(engine.cpu_isa, base::IsaChoice::kX86_64V3);
  EXPECT_THAT(render_plan(plan), HasSubstr(R"(--kv-disk-path '/my data/it'\''s' --kv-disk-space)"));
  for (const std::string& flag : report(plan::glm_5_3(), kFlagship).flags) {
    EXPECT_THAT(flag, testing::Not(HasSubstr("--threads"))) << "a default";
  }
}

TEST(PlanReport, ResidentBatchesKeepToMaxNumSeqs) {
  std::vector<std::string> arguments = {"--gpus", "8xH200", "--max-model-len", "4096"};
  const auto largest = [&] {
    std::int64_t batch = 0;
    for (const plan::StepCost& step : report(plan::glm_5_3(), arguments).steps) {
      if (step.tier == plan::Tier::kResident) batch = std::max(batch, step.batch);
    }
    return batch;
  };
  EXPECT_GT(largest(), 5);
  arguments.insert(arguments.end(), {"--max-num-seqs", "5"});
  EXPECT_EQ(largest(), 5);
}

TEST(PlanReport, ADeviceTooSmallForASpilledRequestIsNotHelpedByHostMemory) {
  std::vector<std::string> arguments = kFlagship;
  arguments.insert(arguments.end(), {"--kv-cache-memory-bytes", "8GiB"});
  const PlanReport plan = report(plan::glm_5_3(), arguments);
  EXPECT_EQ(plan.contexts.back().requests, 0);
  EXPECT_EQ(plan.contexts.back().limit, plan::Limit::kDevice);
  const std::string text = render_plan(plan);
  EXPECT_THAT(text, HasSubstr("its index keys and hot rows take 2.8 GiB of each device, which has "
                              "1.0 GiB for KV pages"));
  EXPECT_THAT(text, testing::Not(HasSubstr("--host-gib")));
}

TEST(PlanReport, AnAssumedDiskSaysSo) {
  config::PlanSettings settings;
  engine::LaunchPlan launch;
  launch.max_model_len = 4096;
  launch.page_bytes = std::int64_t{64} * 131'072;
  launch.disk_page_bytes = launch.page_bytes;
  launch.worker.page_tokens = 64;
  launch.worker.resident_slots = 128;
  launch.worker.max_sequences = 4;
  const plan::ModelGeometry geometry = plan::geometry(plan::llama3_8b());
  const auto text = [&] { return render_plan(report_launch(settings, geometry, launch, 0)); };
  const std::string note = "the disk's 6.0 GB/s are assumed: measure yours and give --disk-gbps";
  EXPECT_THAT(text(), testing::Not(HasSubstr(note)));  // no disk
  launch.worker.disk_slots = 128;
  EXPECT_THAT(text(), HasSubstr(note));
  settings.disk_gbps_assumed = false;
  EXPECT_THAT(text(), testing::Not(HasSubstr(note)));
}

TEST(PlanReport, ADenseModelSaysWhatStreamingCosts) {
  const PlanReport plan = report(plan::qwen2_72b(), {"--gpus", "8xH200", "--host-gib", "1000"});
  EXPECT_TRUE(plan.misses.empty());
  ASSERT_FALSE(plan.steps.empty());
  const plan::StepCost& last = plan.steps.back();
  EXPECT_EQ(last.tier, plan::Tier::kHost);
  EXPECT_EQ(last.batch, plan.contexts.back().requests);
  EXPECT_EQ(last.seconds(), last.link_seconds);
  EXPECT_THAT(render_plan(plan), HasSubstr("class E0"));
}

TEST(PlanReport, BandwidthsGivenWinOverTheStated) {
  std::vector<std::string> arguments = kFlagship;
  arguments.insert(arguments.end(), {"--gather-gbps", "18.5", "--memory-gbps", "4000"});
  const PlanReport plan = report(plan::glm_5_3(), arguments);
  EXPECT_EQ(plan.bandwidths.memory, 4e12);
  EXPECT_NEAR(plan.misses.back().tokens_per_second, 22, 0.5);  // half of 44
}

TEST(PlanReport, WhereNothingFitsItSaysSo) {
  const PlanReport plan = report(plan::glm_5_3(), {"--gpus", "8xH200"});
  EXPECT_EQ(plan.contexts.back().requests, 0);
  const std::string text = render_plan(plan);
  EXPECT_THAT(text, HasSubstr("not one request of 1048576 tokens fits"));
  EXPECT_THAT(text, HasSubstr("50.0 GiB"));
  EXPECT_NE(plan.steps.front().tier, plan::Tier::kResident);  // nothing to give a ceiling for
}

TEST(PlanReport, WhatCannotBePlannedIsRefused) {
  const auto message = [](const Fields& fields, const std::vector<std::string>& arguments) {
    return std::string(try_report(fields, arguments).status().message());
  };
  EXPECT_THAT(message(plan::glm_5_3(), {"--gpus", "8xB300"}), HasSubstr("8xB300"));
  EXPECT_THAT(message(plan::glm_5_3(), {"--gpus", "8xH200", "--tensor-parallel-size", "4"}),
              HasSubstr("--tensor-parallel-size 4"));
  Fields modelopt = plan::glm_5_3();
  modelopt["quantization_config"] = R"({"quant_method":"modelopt"})";
  EXPECT_THAT(message(modelopt, kFlagship), HasSubstr("--weight-dtype"));
  std::vector<std::string> arguments = kFlagship;
  arguments.insert(arguments.end(), {"--weight-dtype", "fp8"});
  EXPECT_EQ(report(modelopt, arguments).model.weight_bytes,
            report(plan::glm_5_3(), kFlagship).model.weight_bytes);
}

}  // namespace
}  // namespace hisparse::app
