#include <cmath>
#include <utility>
#include <vector>

#include "config/option_groups.h"
#include "config/option_helpers.h"

namespace hisparse::config {
namespace {

constexpr std::int32_t kMaxBlockSize = 1024;
constexpr std::int32_t kMaxRanks = 64;
constexpr std::int32_t kMaxPreemptions = 1000;
constexpr std::int64_t kMaxKvBytes = std::int64_t{1} << 50;
constexpr double kMaxSwapSpace = 1 << 20;  // GiB
constexpr std::int64_t kMaxReplanTokens = std::int64_t{1} << 30;
constexpr std::int64_t kMaxProfilingWindow = std::int64_t{1} << 28;

// Names with their values; `shown` lists them for the help text.
template <typename Choice>
using ChoiceNames = std::vector<std::pair<std::string, Choice>>;

template <typename Choice>
CLI::Option* add_choice(CLI::App& command, const std::string& name, Choice& target,
                        const ChoiceNames<Choice>& names, const std::string& shown,
                        const std::string& help) {
  return command.add_option("--" + name, target, help)
      ->envname(environment_name(name))
      ->transform(CLI::CheckedTransformer(names).description(shown))
      ->default_str("auto");
}

void add_dtypes(CLI::App& command, EngineSettings& engine) {
  const ChoiceNames<DTypeChoice> rows = {
      {"auto", DTypeChoice::kAuto},     {"f32", DTypeChoice::kF32},
      {"float32", DTypeChoice::kF32},   {"bf16", DTypeChoice::kBF16},
      {"bfloat16", DTypeChoice::kBF16},
  };
  ChoiceNames<DTypeChoice> products = rows;
  products.emplace_back("int8", DTypeChoice::kInt8);
  add_choice(command, "dtype", engine.dtype, products, "auto|f32|bf16|int8",
             "Matrix products; auto: as the file, quantised weights with 16-bit activations; int8: "
             "these with 8-bit ones, faster and less exact");
  add_choice(command, "kv-cache-dtype", engine.kv_cache_dtype, rows, "auto|f32|bf16",
             "Type of the KV rows; auto: f32 with --dtype f32, else bf16");
}

void add_cpu_isa(CLI::App& command, EngineSettings& engine) {
  add_choice<base::IsaChoice>(command, "cpu-isa", engine.cpu_isa,
                              {{"auto", base::IsaChoice::kBest},
                               {"x86-64-v2", base::IsaChoice::kX86_64V2},
                               {"x86-64-v3", base::IsaChoice::kX86_64V3},
                               {"x86-64-v4", base::IsaChoice::kX86_64V4}},
                              "auto|x86-64-v2|x86-64-v3|x86-64-v4",
                              "Instructions of the kernels; auto: the best that the machine has");
}

void add_tier_options(CLI::App& command, EngineSettings& engine) {
  add_choice<KvTiering>(command, "kv-tiering", engine.kv_tiering,
                        {{"off", KvTiering::kOff}, {"hybrid", KvTiering::kHybrid}}, "off|hybrid",
                        "hybrid: KV pages that do not fit go to host memory and disk; answers stay "
                        "the same")
      ->default_str("off");
  add_option(command, "swap-space", engine.swap_space,
             "With --kv-tiering hybrid: GiB of host memory for KV pages")
      ->check(CLI::Range(0.0, kMaxSwapSpace));
  add_option(command, "kv-disk-path", engine.kv_disk_path,
             "With --kv-tiering hybrid: folder for the file of KV pages");
  add_bytes(command, "kv-disk-space", engine.kv_disk_space,
            "With --kv-disk-path: size of that file (100GiB), taken at the start")
      ->check(CLI::Range(std::int64_t{0}, kMaxKvBytes));
  add_choice<base::DiskIo>(command, "kv-disk-io", engine.kv_disk_io,
                           {{"auto", base::DiskIo::kAuto},
                            {"io_uring", base::DiskIo::kIoUring},
                            {"threads", base::DiskIo::kThreads}},
                           "auto|io_uring|threads",
                           "With --kv-disk-path: how that file is read; auto: with io_uring where "
                           "the kernel allows it");
  command
      .add_flag("--kv-eager-mirror,!--no-kv-eager-mirror", engine.kv_eager_mirror,
                "Copy KV pages down as soon as they are full (off unless switched on)")
      ->envname(environment_name("kv-eager-mirror"));
  command
      .add_flag("--kv-disk-persist,!--no-kv-disk-persist", engine.kv_disk_persist,
                "With --kv-disk-path: the folder keeps the KV pages of past prompts for the next "
                "start, with their tokens (off unless switched on)")
      ->envname(environment_name("kv-disk-persist"));
  add_option(command, "kv-replan-tokens", engine.kv_replan_tokens,
             "With --kv-tiering hybrid: computed tokens after which the attention that pages got "
             "decides anew which stay fast; answers stay the same")
      ->check(CLI::Range(std::int64_t{1}, kMaxReplanTokens));
  add_option(command, "kv-cache-profiling-window", engine.kv_cache_profiling_window,
             "Observations of attention kept for --kv-replan-tokens (8 bytes each); 0: pages go by "
             "age alone")
      ->check(CLI::Range(std::int64_t{0}, kMaxProfilingWindow));
}

void add_cache_options(CLI::App& command, EngineSettings& engine) {
  add_option(command, "block-size", engine.block_size, "Tokens in a page of the KV cache")
      ->check(CLI::Range(1, kMaxBlockSize));
  add_bytes(command, "kv-cache-memory-bytes,--kv-resident-bytes", engine.kv_cache_memory_bytes,
            "Size of the KV cache (4GiB); 0: for requests of --max-model-len, within free memory")
      ->check(CLI::Range(std::int64_t{0}, kMaxKvBytes));
  add_tier_options(command, engine);
  command
      .add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", engine.enable_prefix_caching,
                std::string("Keep the KV pages of past prompts for reuse (") +
                    (engine.enable_prefix_caching ? "on unless switched off)"
                                                  : "off unless switched on)"))
      ->envname(environment_name("enable-prefix-caching"));
  add_option(command, "max-preemptions", engine.max_preemptions,
             "How often one request may be preempted and recomputed")
      ->check(CLI::Range(0, kMaxPreemptions));
}

}  // namespace

void add_engine_options(CLI::App& command, EngineSettings& engine, std::string& config_file) {
  // The positional form is what vLLM's users type.
  command.add_option("--model,model", engine.model, "GGUF file")
      ->envname(environment_name("model"));
  add_dtypes(command, engine);
  add_option(command, "max-model-len", engine.max_model_len,
             "Longest prompt plus output in tokens; 0: the model's")
      ->check(CLI::Range(std::int64_t{0}, kMaxModelLength));
  add_option(command, "max-num-batched-tokens", engine.max_num_batched_tokens,
             "Tokens in one step, at least the requests that run at the same time")
      ->check(CLI::Range(std::int64_t{1}, kMaxModelLength));
  add_cache_options(command, engine);
  add_option(command, "tensor-parallel-size", engine.tensor_parallel_size,
             "Ranks that share the model")
      ->check(CLI::Range(1, kMaxRanks));
  add_option(command, "threads", engine.threads,
             "Compute threads; 0: the cores this process may use")
      ->check(CLI::Range(0, kMaxThreads));
  add_cpu_isa(command, engine);
  add_option(command, "log-level", engine.log_level, "trace, debug, info, warn, error or off");
  command.add_option("--config", config_file, "YAML file of options, by their long names")
      ->envname(environment_name("config"));
}

namespace {

std::string find_tier_conflict(const EngineSettings& engine) {
  if (engine.kv_tiering == KvTiering::kOff) {
    if (engine.kv_disk_path.empty() && engine.kv_disk_space == 0 && !engine.kv_eager_mirror &&
        !engine.kv_disk_persist && engine.kv_disk_io == base::DiskIo::kAuto) {
      return "";
    }
    return "--kv-disk-path, --kv-disk-space, --kv-disk-io, --kv-disk-persist and "
           "--kv-eager-mirror need --kv-tiering hybrid";
  }
  if (!std::isfinite(engine.swap_space)) return "--swap-space must be a number of GiB";
  if (engine.kv_disk_path.empty() != (engine.kv_disk_space == 0)) {
    return "--kv-disk-path and --kv-disk-space belong together";
  }
  if (engine.swap_space == 0.0 && engine.kv_disk_path.empty()) {
    return "--kv-tiering hybrid needs somewhere to put pages: --swap-space or --kv-disk-path";
  }
  if (engine.kv_disk_persist && engine.kv_disk_path.empty()) {
    return "--kv-disk-persist needs a folder: --kv-disk-path and --kv-disk-space";
  }
  if (engine.kv_disk_persist && !engine.enable_prefix_caching) {
    return "--kv-disk-persist keeps pages for prefix caching, which --no-enable-prefix-caching "
           "switches off";
  }
  return "";
}

}  // namespace

std::string find_engine_conflict(const EngineSettings& engine,
                                 const std::string& sequences_option) {
  if (engine.model.empty()) return "--model is required: a GGUF file";
  if (engine.max_num_batched_tokens < engine.max_num_seqs) {
    return "--max-num-batched-tokens must be at least " + sequences_option +
           ", so that every running request can take a step";
  }
  return find_tier_conflict(engine);
}

}  // namespace hisparse::config
