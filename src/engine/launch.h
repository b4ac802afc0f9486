// From settings and a checkpoint to a running engine: sizes, the memory plan, devices, workers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "config/server_config.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine.h"
#include "engine/worker.h"
#include "format/checkpoint.h"
#include "transfer/page_store.h"

namespace hisparse::engine {

struct LaunchOptions {
  config::EngineSettings settings;
  std::int32_t max_live_requests = 256;
  TokenBytes token_bytes;                 // of the tokenizer
  std::vector<base::TokenId> end_tokens;  // that the tokenizer adds to the checkpoint's
  model::LoadProgress progress;
  device::CpuDeviceOptions device;                                 // tests
  FreedPages freed_pages = FreedPages::kLeave;                     // tests
  std::int64_t stream_half_bytes = PageStream::kDefaultHalfBytes;  // tests
  LogitsObserver observe_logits;                                   // tests
  // Not null: prompts are not read, their KV rows come from here. Outlives the engine. Tests and
  // measurements only; --max-model-len may then be more than the model was made for.
  KvSource* kv_source = nullptr;
};

// Everything that start-up decided; printed, and part of /version and of the cache keys.
struct LaunchPlan {
  model::ModelSpec spec;
  WorkerOptions worker;
  std::int32_t ranks = 1;
  std::int32_t threads = 1;
  std::int64_t max_model_len = 0;
  std::int64_t page_bytes = 0;       // over all ranks
  std::int64_t disk_page_bytes = 0;  // the same in the files of the disk tier
  base::Ledger ledger;               // over all ranks
};

// Decides sizes and checks them against the memory that is free. Loads nothing. Errors give the
// numbers and the flag to change: InvalidArgument for settings, ResourceExhausted for memory.
absl::StatusOr<LaunchPlan> plan_launch(const format::Checkpoint& checkpoint,
                                       const LaunchOptions& options);

// Bytes that a start may take of the memory that is free now; 0 when nothing is known.
std::int64_t usable_memory();

// Tokens whose KV rows all tiers together hold.
inline std::int64_t kv_cache_tokens(const LaunchPlan& plan) {
  const std::int64_t pages =
      std::int64_t{plan.worker.resident_slots} + plan.worker.host_slots + plan.worker.disk_slots;
  return pages * plan.worker.page_tokens;
}

// A running engine and what it stands on; destroyed in reverse order.
struct LaunchedEngine {
  LaunchPlan plan;
  std::string isa_level;  // of the devices
  std::unique_ptr<base::ThreadPool> pool;
  std::unique_ptr<transfer::PageStore> store;  // null: pages do not outlive the process
  std::unique_ptr<Engine> engine;
};

// Carries out the plan: loads the weights and starts the threads.
absl::StatusOr<LaunchedEngine> launch(const format::Checkpoint& checkpoint, const LaunchPlan& plan,
                                      const LaunchOptions& options);

// "weights 0.125 GiB, ..." for the log and for errors.
std::string describe(const base::Ledger& ledger);
std::string describe_bytes(std::int64_t bytes);

}  // namespace hisparse::engine
