#include "obs/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

namespace hisparse::obs {
namespace {

using testing::HasSubstr;
using testing::Not;

MetricsInput sample(const engine::EngineStats& stats) {
  MetricsInput input;
  input.engine = &stats;
  input.http = {{"/v1/chat/completions", "POST", 200, 5}, {"/health", "GET", 200, 7}};
  input.model_name = "m\"1";
  input.version = "0.1.0";
  return input;
}

engine::EngineStats filled() {
  engine::EngineStats stats;
  stats.running = 3;
  stats.waiting = 4;
  stats.finished = {10, 11, 12, 13};
  stats.preemptions = 2;
  stats.prompt_tokens = 100;
  stats.generation_tokens = 9007199254740991;
  stats.linear_rows = 77;
  stats.kv.tiers[0] = {.capacity = 10, .free = 6, .filling = 1, .ready = 3, .draining = 0};
  stats.kv.referenced = 2;
  stats.kv.cached = 2;
  stats.kv.lookup_tokens = 64;
  stats.kv.hit_tokens = 32;
  stats.kv.heat_observations = 41;
  stats.kv.heat_observations_lost = 42;
  stats.kv.heat_replans = 43;
  stats.kv.exchanged_pages = 44;
  stats.page_tokens = 16;
  stats.planned[base::MemoryOwner::kWeights] = 1000;
  stats.allocated[base::MemoryOwner::kWeights] = 999;
  stats.time_to_first_token.observe(0.007);
  stats.time_to_first_token.observe(1e6);
  return stats;
}

TEST(Metrics, ValuesStandUnderTheirNames) {
  const engine::EngineStats stats = filled();
  const std::string text = render_metrics(sample(stats));
  for (const char* line :
       {"hisparse_requests_running 3\n", "hisparse_requests_waiting 4\n",
        "hisparse_requests_finished_total{reason=\"length\",exactness=\"exact\"} 11\n",
        "hisparse_generation_tokens_total 9007199254740991\n",
        "hisparse_kv_slots{tier=\"resident\",state=\"free\"} 6\n",
        "hisparse_kv_slots{tier=\"resident\",state=\"ready\"} 3\n",
        "hisparse_kv_referenced_pages 2\n", "hisparse_prefix_cache_hit_tokens_total 32\n",
        "hisparse_linear_rows_total 77\n", "hisparse_kv_heat_observations_total 41\n",
        "hisparse_kv_heat_observations_lost_total 42\n", "hisparse_kv_replans_total 43\n",
        "hisparse_kv_exchanged_pages_total 44\n",
        "hisparse_memory_bytes{owner=\"weights\",source=\"planned\"} 1000\n",
        "hisparse_memory_bytes{owner=\"weights\",source=\"allocated\"} 999\n",
        "hisparse_http_requests_total{route=\"/v1/chat/completions\",method=\"POST\","
        "code=\"200\"} 5\n",
        "hisparse_build_info{version=\"0.1.0\",model_name=\"m\\\"1\"} 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Metrics, AliasesFollowVllm) {
  const engine::EngineStats stats = filled();
  const std::string text = render_metrics(sample(stats));
  for (const char* line :
       {"vllm:num_requests_running{model_name=\"m\\\"1\"} 3\n",
        "vllm:num_requests_waiting{model_name=\"m\\\"1\"} 4\n",
        "vllm:prefix_cache_queries_total{model_name=\"m\\\"1\"} 64\n",
        "vllm:prefix_cache_hits_total{model_name=\"m\\\"1\"} 32\n",
        "vllm:prompt_tokens_total{model_name=\"m\\\"1\"} 100\n",
        "vllm:num_preemptions_total{model_name=\"m\\\"1\"} 2\n",
        "vllm:request_success_total{model_name=\"m\\\"1\",finished_reason=\"stop\"} 10\n",
        "vllm:cache_config_info{model_name=\"m\\\"1\",block_size=\"16\",num_gpu_blocks=\"10\"} 1\n",
        "vllm:time_to_first_token_seconds_count{model_name=\"m\\\"1\"} 2\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, testing::ContainsRegex("vllm:kv_cache_usage_perc\\{[^}]*\\} 0\\.20*1?\n"));
}

TEST(Metrics, UsageOfAnEmptyPoolIsZero) {
  const engine::EngineStats stats;
  const std::string text = render_metrics(sample(stats));
  EXPECT_THAT(text, HasSubstr("vllm:kv_cache_usage_perc{model_name=\"m\\\"1\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(Metrics, HistogramBucketsAreCumulativeAndEndAtInfinity) {
  const engine::EngineStats stats = filled();
  const std::string text = render_metrics(sample(stats));
  const std::string name = "hisparse_time_to_first_token_seconds";
  EXPECT_THAT(text, testing::ContainsRegex(name + "_bucket\\{le=\"0.005[0-9]*\"\\} 0\n"));
  EXPECT_THAT(text, testing::ContainsRegex(name + "_bucket\\{le=\"0.01[0-9]*\"\\} 1\n"));
  EXPECT_THAT(text, testing::ContainsRegex(name + "_bucket\\{le=\"480\"\\} 1\n"));
  EXPECT_THAT(text, HasSubstr(name + "_bucket{le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, HasSubstr(name + "_count 2\n"));
}

TEST(Metrics, EveryFamilyIsDescribedOnce) {
  const engine::EngineStats stats = filled();
  std::istringstream text(render_metrics(sample(stats)));
  std::set<std::string> helped;
  std::set<std::string> typed;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string hash, kind, name;
    words >> hash >> kind >> name;
    if (hash != "#") continue;
    EXPECT_TRUE((kind == "HELP" ? helped : typed).insert(name).second) << name;
  }
  EXPECT_EQ(helped, typed);
  EXPECT_GT(typed.size(), 40u);
}

TEST(Process, ReadsItself) {
  const ProcessStats stats = read_process();
  EXPECT_GT(stats.resident_bytes, 1 << 16);
  EXPECT_GT(stats.virtual_bytes, stats.resident_bytes);
  EXPECT_GE(stats.open_fds, 3);
  EXPECT_GE(stats.max_fds, stats.open_fds);
  EXPECT_GT(stats.start_time_seconds, 1.6e9);
  EXPECT_LT(stats.start_time_seconds, 1e11);
}

}  // namespace
}  // namespace hisparse::obs
