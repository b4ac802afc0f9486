// All settings of the program as one typed, validated value.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/disk_io.h"
#include "base/dtype.h"
#include "base/isa_choice.h"

namespace hisparse::config {

inline constexpr std::int32_t kMaxSequences = 4096;  // the largest max_num_seqs

// kAuto for products: f32 where the file holds f32, integers with 16-bit activations where it is
// quantised, else bf16. kAuto for KV rows: f32 with f32 products, else bf16. kInt8, for products
// only: quantised matrices meet 8-bit activations.
enum class DTypeChoice : std::uint8_t { kAuto, kF32, kBF16, kInt8 };

// kHybrid: pages stay in the slab while there is room, and go to host memory and disk when there is
// none. kOff: only the slab.
enum class KvTiering : std::uint8_t { kOff, kHybrid };

// What `serve`, `generate` and `bench` need. Names follow the flags (ARCHITECTURE section 9). Zero
// means "choose".
struct EngineSettings {
  std::string model;  // a .gguf file
  DTypeChoice dtype = DTypeChoice::kAuto;
  DTypeChoice kv_cache_dtype = DTypeChoice::kAuto;
  std::int64_t max_model_len = 0;  // 0: what the model was trained for
  std::int32_t max_num_seqs = 32;
  std::int64_t max_num_batched_tokens = 512;
  std::int32_t block_size = 64;            // tokens in a page
  std::int64_t kv_cache_memory_bytes = 0;  // over all ranks; 0: what max_num_seqs * max_model_len
                                           // may need, within a share of the free memory
  KvTiering kv_tiering = KvTiering::kOff;
  double swap_space = 4.0;         // GiB of host memory for pages, over all ranks
  std::string kv_disk_path;        // a folder; empty: no disk tier
  std::int64_t kv_disk_space = 0;  // bytes of pages on disk, over all ranks
  bool kv_eager_mirror = false;    // copy pages down as soon as they are full
  base::DiskIo kv_disk_io = base::DiskIo::kAuto;
  bool kv_disk_persist = false;  // keep the pages on disk for the next start
  // Computed tokens between two looks at the heat of pages, and the observations kept in between;
  // 0: no heat.
  std::int64_t kv_replan_tokens = 100;
  std::int64_t kv_cache_profiling_window = 4096;
  bool enable_prefix_caching = true;
  std::int32_t max_preemptions = 3;
  std::int32_t tensor_parallel_size = 1;
  std::int32_t threads = 0;  // 0: the cores this process may use
  base::IsaChoice cpu_isa = base::IsaChoice::kBest;
  std::string log_level = "info";
};

struct ServeSettings {
  EngineSettings engine;
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  std::int32_t http_threads = 2;
  std::string served_model_name;     // empty: the file's name without its ending
  std::vector<std::string> api_key;  // empty: no key is asked for
  std::int64_t max_body_bytes = 32 << 20;
  std::int32_t max_num_queued_reqs = 256;
  std::int32_t shutdown_timeout = 60;  // seconds
};

struct GenerateSettings {
  EngineSettings engine;
  std::string prompt;
  bool raw = false;  // the prompt goes in as it is, without the chat template
  std::int32_t max_tokens = 256;
  float temperature = 0.0f;
  float top_p = 1.0f;
  std::int32_t top_k = 0;
  std::uint64_t seed = 0;
  std::vector<std::string> stop;
};

// What `hisparse bench` measures: every batch size at every prompt length.
struct BenchSettings {
  EngineSettings
      engine;  // max_num_seqs is the largest batch; prefix caching is off unless asked for
  std::vector<std::int32_t> batch_sizes = {1, 8, 32};
  std::vector<std::int64_t> input_lens;  // prompt tokens; empty: kDefaultBenchInputLen, or what the
                                         // model length leaves
  std::int32_t output_len = 128;         // tokens generated for each request
  std::int32_t num_iters = 3;            // measurements of each point
  bool inject_kv = false;                // prompts are not read: their KV rows are random
  std::string output_json;               // empty: none; "-": standard output, instead of the table
  std::uint64_t seed = 0;                // of the prompts
};
inline constexpr std::int64_t kDefaultBenchInputLen = 512;

// Types that a plan may ask for; kFp8 rows and weights are not in this build. kAuto: fp8 latents
// and bf16 K and V; weights as config.json says.
enum class PlanDType : std::uint8_t { kAuto, kF32, kBF16, kFp8 };

// What `hisparse plan` computes. Bandwidths in GB/s (10^9 bytes), 0: the figure of the device.
struct PlanSettings {
  EngineSettings engine;          // `model` may be a config.json or a folder with one
  std::string gpus;               // "8xH200"; empty or "cpu": this machine, as serve would use it
  double host_gib = 0.0;          // not 0: tiers on, with this swap_space
  std::int32_t max_num_seqs = 0;  // 0: as many as fit, or on this machine the engine's
  PlanDType kv_cache_dtype = PlanDType::kAuto;
  PlanDType weight_dtype = PlanDType::kAuto;
  std::int32_t num_speculative_tokens = 0;  // 0: MTP layers stay unloaded
  std::int64_t hot_rows = 0;                // 0: (num_speculative_tokens + 2) times top-k
  double gpu_memory_utilization = 0.92;
  double memory_gbps = 0.0;
  double link_gbps = 0.0;
  double gather_gbps = 0.0;
  double disk_gbps = 6.0;
  bool disk_gbps_assumed = true;  // nobody gave it
  bool json = false;

  bool on_this_machine() const { return gpus.empty() || gpus == "cpu"; }
};

enum class Command : std::uint8_t { kServe, kGenerate, kBench, kPlan, kVersion };

// One of the settings is filled, by `command`.
struct Settings {
  Command command = Command::kVersion;
  ServeSettings serve;
  GenerateSettings generate;
  BenchSettings bench;
  PlanSettings plan;
};

}  // namespace hisparse::config
