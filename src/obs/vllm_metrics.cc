// The names that vLLM gives to the same quantities, for the Kubernetes gateway extension and for
// dashboards that exist.
#include <algorithm>
#include <cstddef>

#include "obs/family.h"
#include "obs/metrics.h"

namespace hisparse::obs {
namespace {

std::vector<Series> labelled(const Labels& labels, std::int64_t value) {
  return {{labels, static_cast<double>(value)}};
}

// Slots of all tiers.
std::int64_t capacity(const kv::KvStats& kv) {
  std::int64_t slots = 0;
  for (const kv::TierStats& tier : kv.tiers) slots += tier.capacity;
  return slots;
}

// 0 to 1 in spite of vLLM's name. Cached pages that nobody uses count as free, as there.
double usage(const kv::KvStats& kv) {
  const std::int64_t slots = capacity(kv);
  return slots == 0
             ? 0.0
             : std::min(1.0, static_cast<double>(kv.referenced) / static_cast<double>(slots));
}

void add_gauges(Families& families, const engine::EngineStats& stats, const Labels& labels) {
  families.push_back(gauge("vllm:num_requests_running", "Alias of hisparse_requests_running.",
                           labelled(labels, stats.running)));
  families.push_back(gauge("vllm:num_requests_waiting", "Alias of hisparse_requests_waiting.",
                           labelled(labels, stats.waiting)));
  families.push_back(gauge("vllm:kv_cache_usage_perc",
                           "Share of the pages of all tiers that sequences use, 0 to 1.",
                           {{labels, usage(stats.kv)}}));
  Labels config = labels;
  config.push_back({"block_size", std::to_string(stats.page_tokens)});
  config.push_back({"num_gpu_blocks", std::to_string(capacity(stats.kv))});
  families.push_back(gauge("vllm:cache_config_info", "Always 1; the labels tell the KV pool.",
                           labelled(config, 1)));
}

void add_counters(Families& families, const engine::EngineStats& stats, const Labels& labels) {
  families.push_back(counter("vllm:prefix_cache_queries_total",
                             "Alias of hisparse_prefix_cache_lookup_tokens_total.",
                             labelled(labels, stats.kv.lookup_tokens)));
  families.push_back(counter("vllm:prefix_cache_hits_total",
                             "Alias of hisparse_prefix_cache_hit_tokens_total.",
                             labelled(labels, stats.kv.hit_tokens)));
  families.push_back(counter("vllm:prompt_tokens_total", "Alias of hisparse_prompt_tokens_total.",
                             labelled(labels, stats.prompt_tokens)));
  families.push_back(counter("vllm:generation_tokens_total",
                             "Alias of hisparse_generation_tokens_total.",
                             labelled(labels, stats.generation_tokens)));
  families.push_back(counter("vllm:num_preemptions_total", "Alias of hisparse_preemptions_total.",
                             labelled(labels, stats.preemptions)));
  std::vector<Series> finished;
  for (std::size_t i = 0; i < stats.finished.size(); ++i) {
    Labels reason = labels;
    reason.push_back(
        {"finished_reason", std::string(engine::name_of(static_cast<engine::FinishReason>(i)))});
    finished.push_back({std::move(reason), static_cast<double>(stats.finished[i])});
  }
  families.push_back(counter("vllm:request_success_total",
                             "Alias of hisparse_requests_finished_total.", std::move(finished)));
}

}  // namespace

void add_vllm_aliases(Families& families, const MetricsInput& input) {
  const engine::EngineStats& stats = *input.engine;
  const Labels labels = {{"model_name", input.model_name}};
  add_gauges(families, stats, labels);
  add_counters(families, stats, labels);
  families.push_back(histogram("vllm:time_to_first_token_seconds",
                               "Alias of hisparse_time_to_first_token_seconds.",
                               stats.time_to_first_token, labels));
  families.push_back(histogram("vllm:inter_token_latency_seconds",
                               "Alias of hisparse_inter_token_latency_seconds.",
                               stats.inter_token_latency, labels));
  families.push_back(histogram("vllm:e2e_request_latency_seconds",
                               "Alias of hisparse_request_latency_seconds.", stats.request_latency,
                               labels));
}

}  // namespace hisparse::obs
