// Our own names.
#include <cstddef>

#include "base/clock.h"
#include "base/ledger.h"
#include "obs/family.h"
#include "obs/metrics.h"

namespace hisparse::obs {
namespace {

using engine::EngineStats;

std::vector<Series> by_finish_reason(const EngineStats& stats) {
  std::vector<Series> series;
  for (std::size_t i = 0; i < stats.finished.size(); ++i) {
    const auto reason = engine::name_of(static_cast<engine::FinishReason>(i));
    series.push_back({{{"reason", std::string(reason)},
                       {"exactness", std::string(engine::name_of(engine::Exactness::kExact))}},
                      static_cast<double>(stats.finished[i])});
  }
  return series;
}

std::vector<Series> by_refusal(const EngineStats& stats) {
  std::vector<Series> series;
  for (std::size_t i = 0; i < stats.refused.size(); ++i) {
    const auto reason = engine::name_of(static_cast<engine::Refusal>(i));
    series.push_back({{{"reason", std::string(reason)}}, static_cast<double>(stats.refused[i])});
  }
  return series;
}

void add_requests(Families& families, const EngineStats& stats) {
  families.push_back(
      gauge("hisparse_requests_running", "Requests that hold KV pages.", one(stats.running)));
  families.push_back(gauge("hisparse_requests_waiting",
                           "Requests in the queue that hold no KV pages.", one(stats.waiting)));
  families.push_back(counter("hisparse_requests_finished_total",
                             "Requests by how they ended and what their answers promise.",
                             by_finish_reason(stats)));
  families.push_back(counter(
      "hisparse_requests_rejected_total",
      "Requests refused before they were queued (does_not_fit: more tokens than the model or "
      "the KV cache holds).",
      by_refusal(stats)));
  families.push_back(counter("hisparse_preemptions_total",
                             "Sequences that gave their KV pages up for others.",
                             one(stats.preemptions)));
  families.push_back(counter("hisparse_recomputed_tokens_total",
                             "Tokens whose KV rows were computed again after a preemption.",
                             one(stats.recomputed_tokens)));
  families.push_back(counter("hisparse_prompt_tokens_total", "Prompt tokens of admitted requests.",
                             one(stats.prompt_tokens)));
  families.push_back(counter("hisparse_cached_prompt_tokens_total",
                             "Prompt tokens that were not computed, since their KV rows were held.",
                             one(stats.cached_prompt_tokens)));
  families.push_back(counter("hisparse_generation_tokens_total", "Tokens generated.",
                             one(stats.generation_tokens)));
}

void add_work(Families& families, const EngineStats& stats) {
  families.push_back(counter("hisparse_steps_total", "Engine steps.", one(stats.steps)));
  families.push_back(counter("hisparse_linear_calls_total", "Matrix products of rank 0.",
                             one(stats.linear_calls)));
  families.push_back(counter("hisparse_linear_rows_total",
                             "Activation rows that went through the matrix products of rank 0.",
                             one(stats.linear_rows)));
  families.push_back(
      histogram("hisparse_step_rows", "Rows (tokens) in an engine step.", stats.step_rows));
  families.push_back(histogram("hisparse_time_to_first_token_seconds",
                               "From the arrival of a request to its first token.",
                               stats.time_to_first_token));
  families.push_back(histogram("hisparse_inter_token_latency_seconds",
                               "Between two tokens of a request.", stats.inter_token_latency));
  families.push_back(histogram("hisparse_request_latency_seconds",
                               "From the arrival of a request to its end.", stats.request_latency));
  families.push_back(histogram("hisparse_request_queue_time_seconds",
                               "From the arrival of a request to its admission.",
                               stats.queue_time));
}

double to_seconds(base::Nanoseconds duration) { return static_cast<double>(duration) / 1e9; }

std::string label(kv::Tier tier) { return std::string(kv::name_of(tier)); }

std::vector<Series> slots(const kv::KvStats& kv) {
  std::vector<Series> series;
  for (const kv::Tier tier : kv::kAllTiers) {
    const kv::TierStats& slots = kv.tier(tier);
    const std::pair<const char*, std::int32_t> states[] = {{"free", slots.free},
                                                           {"filling", slots.filling},
                                                           {"ready", slots.ready},
                                                           {"draining", slots.draining}};
    for (const auto& [state, count] : states) {
      series.push_back({{{"tier", label(tier)}, {"state", state}}, static_cast<double>(count)});
    }
  }
  return series;
}

std::vector<Series> moves(const kv::KvStats& kv, double unit) {
  std::vector<Series> series;
  for (const kv::Tier from : kv::kAllTiers) {
    for (const kv::Tier to : kv::kAllTiers) {
      if (from == to) continue;
      series.push_back({{{"from", label(from)}, {"to", label(to)}},
                        unit * static_cast<double>(kv.moved[index_of(from)][index_of(to)])});
    }
  }
  return series;
}

void add_tiers(Families& families, const EngineStats& stats) {
  const kv::KvStats& kv = stats.kv;
  families.push_back(
      counter("hisparse_kv_moved_pages_total", "Pages copied between tiers.", moves(kv, 1.0)));
  families.push_back(counter("hisparse_kv_moved_bytes_total",
                             "Bytes of pages copied between tiers, over all ranks.",
                             moves(kv, static_cast<double>(stats.page_bytes))));
  std::vector<Series> reasons, closed;
  for (std::size_t i = 0; i < kv::kMoveReasons; ++i) {
    const std::string reason(kv::name_of(static_cast<kv::MoveReason>(i)));
    reasons.push_back({{{"reason", reason}}, static_cast<double>(kv.moved_for[i])});
  }
  for (const kv::Tier tier : kv::kAllTiers) {
    closed.push_back({{{"tier", label(tier)}}, kv.tier(tier).closed ? 1.0 : 0.0});
  }
  families.push_back(counter(
      "hisparse_kv_moves_total",
      "Pages copied between tiers, by reason (mirror, spill, restore, exchange).", reasons));
  families.push_back(gauge("hisparse_kv_tier_closed",
                           "1: the tier failed too often and takes no further pages.", closed));
  families.push_back(gauge("hisparse_kv_transfers_in_flight", "Pages that are being copied.",
                           one(std::int64_t{kv.in_flight})));
  families.push_back(counter("hisparse_kv_failed_transfers_total",
                             "Pages that could not be copied.", one(kv.failed_transfers)));
  families.push_back(counter("hisparse_kv_lost_pages_total",
                             "Pages that did not hold what was written and were given up.",
                             one(kv.lost_pages)));
  families.push_back(counter("hisparse_kv_adopted_pages_total",
                             "Pages of an earlier process that were found on disk.",
                             one(kv.adopted_pages)));
  families.push_back(gauge("hisparse_kv_unpersisted_pages",
                           "Pages that are yet to be copied to disk for the next process.",
                           one(std::int64_t{kv.unpersisted})));
}

// What steps had to do with pages that were not resident.
void add_reads(Families& families, const EngineStats& stats) {
  families.push_back(
      counter("hisparse_kv_streamed_bytes_total",
              "Bytes read from disk by steps for pages that were not in memory, over all ranks.",
              {{{{"step", "decode"}}, static_cast<double>(stats.streamed.decode_bytes)},
               {{{"step", "prefill"}}, static_cast<double>(stats.streamed.prefill_bytes)}}));
  families.push_back(
      counter("hisparse_kv_restore_wait_seconds_total",
              "Time that steps stood still until pages had come from disk, over all ranks.",
              {{{{"step", "decode"}}, to_seconds(stats.streamed.decode_wait)},
               {{{"step", "prefill"}}, to_seconds(stats.streamed.prefill_wait)}}));
  families.push_back(counter("hisparse_kv_room_wait_seconds_total",
                             "Time in which no step could run until pages had been copied down.",
                             one(stats.room_wait)));
  std::vector<Series> hits;
  for (const kv::Tier tier : kv::kAllTiers) {
    hits.push_back(
        {{{"tier", label(tier)}}, static_cast<double>(stats.kv.hit_pages[index_of(tier)])});
  }
  families.push_back(counter("hisparse_prefix_cache_hit_pages_total",
                             "Pages found in the prefix index, by where they lay.", hits));
}

void add_heat(Families& families, const kv::KvStats& kv) {
  families.push_back(counter("hisparse_kv_heat_observations_total",
                             "Pages that were asked how much attention they got.",
                             one(kv.heat_observations)));
  families.push_back(counter("hisparse_kv_heat_observations_lost_total",
                             "Of these, those that --kv-cache-profiling-window had no room for.",
                             one(kv.heat_observations_lost)));
  families.push_back(counter("hisparse_kv_replans_total",
                             "Times that the heat of pages was brought up to date.",
                             one(kv.heat_replans)));
  families.push_back(counter("hisparse_kv_exchanged_pages_total",
                             "Hot pages brought up in the place of colder ones.",
                             one(kv.exchanged_pages)));
}

void add_kv(Families& families, const EngineStats& stats) {
  const kv::KvStats& kv = stats.kv;
  families.push_back(gauge("hisparse_kv_slots", "Page slots by tier and state.", slots(kv)));
  families.push_back(gauge("hisparse_kv_referenced_pages", "Pages that a sequence uses.",
                           one(std::int64_t{kv.referenced})));
  families.push_back(gauge("hisparse_kv_cached_pages",
                           "Pages kept for later prompts that no sequence uses.",
                           one(std::int64_t{kv.cached})));
  families.push_back(
      gauge("hisparse_kv_page_tokens", "Tokens in a page.", one(std::int64_t{stats.page_tokens})));
  families.push_back(
      gauge("hisparse_kv_page_bytes", "Bytes of a page over all ranks.", one(stats.page_bytes)));
  families.push_back(counter("hisparse_prefix_cache_lookup_tokens_total",
                             "Prompt tokens looked up in the prefix index.",
                             one(kv.lookup_tokens)));
  families.push_back(counter("hisparse_prefix_cache_hit_tokens_total",
                             "Prompt tokens found in the prefix index.", one(kv.hit_tokens)));
  families.push_back(counter("hisparse_prefix_cache_dropped_pages_total",
                             "Cached pages given up for room.", one(kv.dropped_blocks)));
  families.push_back(counter("hisparse_kv_deduplicated_pages_total",
                             "Full pages replaced by an equal one that was held.",
                             one(kv.deduplicated_blocks)));
  families.push_back(counter("hisparse_kv_stray_completions_total",
                             "Completions of transfers that were not in flight.",
                             one(kv.stray_completions)));
  add_tiers(families, stats);
  add_reads(families, stats);
  add_heat(families, kv);
}

void add_memory(Families& families, const EngineStats& stats) {
  std::vector<Series> series;
  for (std::size_t i = 0; i < base::kMemoryOwners; ++i) {
    const auto owner = static_cast<base::MemoryOwner>(i);
    const std::string name(base::name_of(owner));
    series.push_back(
        {{{"owner", name}, {"source", "planned"}}, static_cast<double>(stats.planned[owner])});
    series.push_back(
        {{{"owner", name}, {"source", "allocated"}}, static_cast<double>(stats.allocated[owner])});
  }
  families.push_back(gauge("hisparse_memory_bytes",
                           "Memory over all ranks: announced at start, and counted by the "
                           "allocators.",
                           std::move(series)));
}

void add_http(Families& families, const MetricsInput& input) {
  std::vector<Series> series;
  for (const HttpRequestCount& request : input.http) {
    series.push_back({{{"route", request.route},
                       {"method", request.method},
                       {"code", std::to_string(request.code)}},
                      static_cast<double>(request.count)});
  }
  families.push_back(counter("hisparse_http_requests_total",
                             "HTTP requests answered; code 499: the client left before.",
                             std::move(series)));
}

}  // namespace

void add_native(Families& families, const MetricsInput& input) {
  families.push_back(gauge("hisparse_build_info", "Always 1; the labels tell what runs.",
                           {{{{"version", input.version}, {"model_name", input.model_name}}, 1}}));
  add_requests(families, *input.engine);
  add_work(families, *input.engine);
  add_kv(families, *input.engine);
  add_memory(families, *input.engine);
  add_http(families, input);
}

void add_process(Families& families, const MetricsInput& input) {
  const ProcessStats& process = input.process;
  families.push_back(
      counter("process_cpu_seconds_total", "User and system CPU time.", one(process.cpu_seconds)));
  families.push_back(
      gauge("process_resident_memory_bytes", "Resident memory.", one(process.resident_bytes)));
  families.push_back(
      gauge("process_virtual_memory_bytes", "Virtual memory.", one(process.virtual_bytes)));
  families.push_back(gauge("process_open_fds", "Open file descriptors.", one(process.open_fds)));
  families.push_back(
      gauge("process_max_fds", "Limit of open file descriptors.", one(process.max_fds)));
  families.push_back(gauge("process_start_time_seconds", "Start of the process, Unix time.",
                           one(process.start_time_seconds)));
}

}  // namespace hisparse::obs
