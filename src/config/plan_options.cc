#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "config/option_groups.h"
#include "config/option_helpers.h"

namespace hisparse::config {
namespace {

constexpr double kMaxGbps = 1e6;
constexpr double kMaxHostGib = 1 << 20;
constexpr std::int32_t kMaxDraftTokens = 16;
constexpr std::int64_t kMaxHotRows = 1 << 20;

void add_dtype(CLI::App& command, const std::string& name, PlanDType& target,
               const std::string& help) {
  const std::vector<std::pair<std::string, PlanDType>> names = {
      {"auto", PlanDType::kAuto}, {"f32", PlanDType::kF32},       {"float32", PlanDType::kF32},
      {"bf16", PlanDType::kBF16}, {"bfloat16", PlanDType::kBF16}, {"fp8", PlanDType::kFp8}};
  command.add_option("--" + name, target, help)
      ->envname(environment_name(name))
      ->transform(CLI::CheckedTransformer(names).description("auto|f32|bf16|fp8"))
      ->default_str("auto");
}

void add_bandwidth(CLI::App& command, const std::string& name, double& target,
                   const std::string& help) {
  add_option(command, name, target, help)->check(CLI::Range(0.0, kMaxGbps));
}

// Options of the engine that take more here than a server does.
void widen_engine_options(CLI::App& command, PlanSettings& plan) {
  command.get_option("--model")->description(
      "GGUF file, config.json, or a folder with config.json (weights need not be there)");
  command.remove_option(command.get_option("--kv-cache-dtype"));
  add_dtype(command, "kv-cache-dtype", plan.kv_cache_dtype,
            "Type of the KV rows; auto: as serve on this machine, on GPUs fp8 latents or bf16 K "
            "and V");
}

// Ranges let through what is not a number.
std::string find_not_a_number(const PlanSettings& plan) {
  const std::pair<const char*, double> values[] = {
      {"--host-gib", plan.host_gib},
      {"--gpu-memory-utilization", plan.gpu_memory_utilization},
      {"--memory-gbps", plan.memory_gbps},
      {"--link-gbps", plan.link_gbps},
      {"--gather-gbps", plan.gather_gbps},
      {"--disk-gbps", plan.disk_gbps}};
  for (const auto& [name, value] : values) {
    if (!std::isfinite(value)) return name;
  }
  return "";
}

std::string find_gpu_option(const PlanSettings& plan) {
  if (plan.kv_cache_dtype == PlanDType::kFp8) return "--kv-cache-dtype fp8";
  if (plan.weight_dtype != PlanDType::kAuto) return "--weight-dtype";
  if (plan.num_speculative_tokens > 0) return "--num-speculative-tokens";
  if (plan.hot_rows > 0) return "--hot-rows";
  return "";
}

// Whether the option stands on the command line itself: the environment and YAML do not count.
bool is_typed(const CLI::App& command, const std::string& name) {
  const std::vector<CLI::Option*>& typed = command.parse_order();
  return std::find(typed.begin(), typed.end(), command.get_option(name)) != typed.end();
}

// What is typed wins over the environment and YAML; else --host-gib does over what it stands for.
std::string resolve_host_memory(const CLI::App& command, PlanSettings& plan) {
  EngineSettings& engine = plan.engine;
  const bool typed = is_typed(command, "--host-gib");
  const bool swap_typed = is_typed(command, "--swap-space");
  const bool off = is_typed(command, "--kv-tiering") && engine.kv_tiering == KvTiering::kOff;
  if (typed && swap_typed) {
    return "--host-gib and --swap-space both say how much host memory KV pages get: give one";
  }
  if (typed && off && plan.host_gib > 0.0) {
    return "--host-gib needs a tier that --kv-tiering off switches off: give one of them";
  }
  if (!typed && (plan.host_gib == 0.0 || swap_typed || off)) return "";
  if (plan.host_gib > 0.0) engine.kv_tiering = KvTiering::kHybrid;
  engine.swap_space = plan.host_gib;
  return "";
}

}  // namespace

void add_plan_options(CLI::App& command, PlanSettings& plan) {
  widen_engine_options(command, plan);
  add_option(command, "gpus", plan.gpus,
             "Machine to plan for, such as 8xH200; cpu or nothing: this machine, as serve would "
             "use it");
  add_option(command, "host-gib", plan.host_gib,
             "GiB of host memory for KV pages: short for --kv-tiering hybrid --swap-space")
      ->check(CLI::Range(0.0, kMaxHostGib));
  add_option(command, "max-num-seqs", plan.max_num_seqs,
             "Requests that run at the same time; 0: on GPUs as many as fit, else as serve")
      ->check(CLI::Range(0, kMaxSequences));
  add_dtype(command, "weight-dtype", plan.weight_dtype,
            "Type of the matrices on GPUs; auto: as config.json says");
  add_option(command, "num-speculative-tokens", plan.num_speculative_tokens,
             "Draft tokens of the model's MTP layers; 0: these stay unloaded")
      ->check(CLI::Range(0, kMaxDraftTokens));
  add_option(command, "hot-rows", plan.hot_rows,
             "Rows that a spilled request keeps on the device in each layer; 0: (draft tokens + 2) "
             "times top-k")
      ->check(CLI::Range(std::int64_t{0}, kMaxHotRows));
  add_option(command, "gpu-memory-utilization", plan.gpu_memory_utilization,
             "Share of a GPU's memory that may be taken")
      ->check(CLI::Range(0.1, 1.0));
  add_bandwidth(
      command, "memory-gbps", plan.memory_gbps,
      "Bandwidth of device memory in GB/s; 0: of the GPU's name, on this machine unknown");
  add_bandwidth(command, "link-gbps", plan.link_gbps,
                "Host to one GPU, large copies, in GB/s; 0: of the GPU's name");
  add_bandwidth(command, "gather-gbps", plan.gather_gbps,
                "Host to one GPU, scattered rows, in GB/s; 0: of the GPU's name");
  add_bandwidth(command, "disk-gbps", plan.disk_gbps,
                "Reading files, the whole machine, in GB/s; assumed unless given");
  command.add_flag("--json", plan.json, "Print JSON instead of the tables");
}

std::string resolve_engine(const CLI::App& command, PlanSettings& plan) {
  if (std::string conflict = resolve_host_memory(command, plan); !conflict.empty()) return conflict;
  EngineSettings& engine = plan.engine;
  plan.disk_gbps_assumed = command.get_option("--disk-gbps")->count() == 0;
  if (plan.max_num_seqs > 0) engine.max_num_seqs = plan.max_num_seqs;
  if (plan.kv_cache_dtype == PlanDType::kF32) engine.kv_cache_dtype = DTypeChoice::kF32;
  if (plan.kv_cache_dtype == PlanDType::kBF16) engine.kv_cache_dtype = DTypeChoice::kBF16;
  return "";
}

std::string find_conflict(const PlanSettings& plan) {
  if (plan.engine.model.empty()) {
    return "--model is required: a GGUF file, a config.json or a folder with one";
  }
  if (const std::string option = find_not_a_number(plan); !option.empty()) {
    return option + " must be a number";
  }
  if (const std::string option = find_gpu_option(plan); plan.on_this_machine() && !option.empty()) {
    return option + " is for a plan of GPUs: give --gpus, such as 8xH200";
  }
  if (!plan.on_this_machine() && plan.engine.dtype != DTypeChoice::kAuto) {
    return "--dtype is about the products of this machine: with --gpus, say --weight-dtype";
  }
  EngineSettings engine = plan.engine;
  // As many as fit: the plan then suggests a step that is large enough.
  if (!plan.on_this_machine() && plan.max_num_seqs == 0) engine.max_num_seqs = 1;
  return find_engine_conflict(engine, "--max-num-seqs");
}

}  // namespace hisparse::config
