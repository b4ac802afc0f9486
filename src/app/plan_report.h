// The results of `hisparse plan` for people and for programs. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/capacity.h"
#include "plan/speed.h"

namespace hisparse::app {

struct PlanModel {
  std::string name;  // the file or folder
  std::string architecture;
  std::int64_t layers = 0;
  std::int64_t mtp_layers = 0;  // that the plan loads
  std::int64_t parameters = 0;
  double active_parameters = 0.0;
  std::int64_t weight_bytes = 0;  // as one copy
  std::string weight_dtype;
  std::string kv_cache_dtype;
};

// kDevice: each GPU. kAllRanks: the memory of this machine, as the ledger of a server counts it.
enum class MemoryScope : std::uint8_t { kDevice, kAllRanks };

struct PlanMemory {
  MemoryScope scope = MemoryScope::kDevice;
  std::int64_t limit = 0;  // bytes that may be taken; 0: not known
  std::vector<std::pair<std::string, std::int64_t>> owners;
};

struct PlanReport {
  std::string version;
  PlanModel model;
  std::string machine;  // "8xH200", "cpu"
  std::int32_t ranks = 1;
  plan::Bandwidths bandwidths;
  std::int64_t max_model_len = 0;
  PlanMemory memory;
  std::vector<plan::PlannedGroup> groups;
  plan::RequestShape shape;
  plan::KvBudget budget;
  std::int64_t hot_rows = 0;  // 0: the model selects no rows
  std::vector<plan::ContextCapacity> contexts;
  plan::KvUse use;                    // of the longest context
  std::vector<plan::StepCost> steps;  // at the longest context
  std::vector<plan::MissCost> misses;
  std::vector<std::string> flags;    // for serve: "--name" or "--name value", unquoted
  std::vector<std::string> missing;  // why this build cannot serve that
  std::vector<std::string> notes;
};

// Tables in Markdown, aligned.
std::string render_plan(const PlanReport& report);

// One JSON object, indented. Bytes are integers, bandwidths GB/s, times milliseconds; null:
// unknown.
std::string render_plan_json(const PlanReport& report);

}  // namespace hisparse::app
