#include <optional>

#include "app/plan_report.h"
#include "nlohmann/json.hpp"

namespace hisparse::app {
namespace {

using Json = nlohmann::ordered_json;

// Raise it when a key changes its meaning or goes.
constexpr int kJsonVersion = 1;
constexpr int kIndent = 2;
constexpr double kGB = 1e9;
constexpr double kMilliseconds = 1e3;

Json known(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json bandwidth(double value) { return value > 0.0 ? Json(value / kGB) : Json(nullptr); }

Json model_json(const PlanModel& model) {
  return {{"name", model.name},
          {"architecture", model.architecture},
          {"layers", model.layers},
          {"mtp_layers", model.mtp_layers},
          {"parameters", model.parameters},
          {"active_parameters", model.active_parameters},
          {"weight_bytes", model.weight_bytes},
          {"weight_dtype", model.weight_dtype},
          {"kv_cache_dtype", model.kv_cache_dtype}};
}

Json machine_json(const PlanReport& report) {
  return {{"name", report.machine},
          {"ranks", report.ranks},
          {"memory_gbps", bandwidth(report.bandwidths.memory)},
          {"link_gbps", bandwidth(report.bandwidths.stream)},
          {"gather_gbps", bandwidth(report.bandwidths.gather)},
          {"disk_gbps", bandwidth(report.bandwidths.disk)}};
}

Json memory_json(const PlanMemory& memory) {
  Json owners = Json::object();
  for (const auto& [owner, bytes] : memory.owners) owners[owner] = bytes;
  return {{"scope", memory.scope == MemoryScope::kDevice ? "each_device" : "all_ranks"},
          {"limit_bytes", memory.limit},
          {"owners", std::move(owners)}};
}

Json kv_json(const PlanReport& report) {
  Json groups = Json::array();
  for (const plan::PlannedGroup& planned : report.groups) {
    groups.push_back({{"name", planned.group.name},
                      {"layers", planned.group.layers},
                      {"layer_row_bytes", kv::PageLayout(planned.group, 1).layer_bytes()},
                      {"replicated", planned.group.sharding == kv::Sharding::kReplicated},
                      {"spills", planned.residency == plan::Residency::kSpills}});
  }
  const plan::TokenRows& rows = report.shape.rows;
  return {{"bytes_per_token_rank", rows.rank()},
          {"spilling_bytes_per_token_rank", rows.spills},
          {"staying_bytes_per_token_rank", rows.stays},
          {"host_bytes_per_token", rows.host},
          {"page_tokens", report.shape.page_tokens},
          {"disk_page_bytes", report.shape.disk.bytes},
          {"hot_rows", report.hot_rows},
          {"hot_bytes_per_request", report.shape.hot_bytes},
          {"resident_bytes_rank", report.budget.device},
          {"host_bytes", report.budget.host},
          {"disk_bytes", report.budget.disk},
          {"groups", std::move(groups)}};
}

Json contexts_json(const PlanReport& report) {
  Json contexts = Json::array();
  for (const plan::ContextCapacity& line : report.contexts) {
    contexts.push_back({{"tokens", line.context},
                        {"resident", line.resident},
                        {"spilled_by_device", line.device_limit},
                        {"spilled_by_host", line.host_limit},
                        {"spilled_by_disk", line.disk_limit},
                        {"lower_bytes_before_device_binds", line.lower_needed},
                        {"requests", line.requests},
                        {"spilled", line.spilled},
                        {"limit", std::string(plan::name_of(line.limit))}});
  }
  return contexts;
}

Json steps_json(const PlanReport& report) {
  Json steps = Json::array();
  for (const plan::StepCost& step : report.steps) {
    std::optional<double> ms = step.seconds();
    if (ms) *ms *= kMilliseconds;
    steps.push_back({{"tier", std::string(plan::name_of(step.tier))},
                     {"batch", step.batch},
                     {"share_of_rows", step.miss},
                     {"memory_bytes", step.memory_bytes},
                     {"link_bytes", step.link_bytes},
                     {"ms_per_step", known(ms)},
                     {"tokens_per_s_request", known(step.tokens_per_second())}});
  }
  return steps;
}

Json misses_json(const PlanReport& report) {
  Json misses = Json::array();
  for (const plan::MissCost& cost : report.misses) {
    misses.push_back({{"miss", cost.miss},
                      {"batch", cost.batch},
                      {"rows_per_layer", cost.rows_per_layer},
                      {"stream_us_per_layer", cost.stream_us_per_layer},
                      {"gather_us_per_layer", cost.gather_us_per_layer},
                      {"gather_ms_per_step", cost.gather_ms_per_step},
                      {"tokens_per_s_request", cost.tokens_per_second}});
  }
  return misses;
}

Json use_json(const plan::KvUse& use) {
  return {{"resident_pages_rank", use.resident_pages},
          {"index_keys_rank", use.index_keys},
          {"hot_rows_rank", use.hot_rows},
          {"host", use.host},
          {"disk", use.disk}};
}

}  // namespace

std::string render_plan_json(const PlanReport& report) {
  const Json json = {{"format", kJsonVersion},
                     {"program", "hisparse plan"},
                     {"version", report.version},
                     {"measured", false},
                     {"model", model_json(report.model)},
                     {"machine", machine_json(report)},
                     {"max_model_len", report.max_model_len},
                     {"memory", memory_json(report.memory)},
                     {"kv", kv_json(report)},
                     {"contexts", contexts_json(report)},
                     {"longest_context_bytes", use_json(report.use)},
                     {"decode_ceilings", steps_json(report)},
                     {"miss_costs", misses_json(report)},
                     {"serve_flags", report.flags},
                     {"not_in_this_build", report.missing},
                     {"notes", report.notes}};
  // A file name may be any bytes.
  return json.dump(kIndent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hisparse::app
