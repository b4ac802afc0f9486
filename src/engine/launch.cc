#include "engine/launch.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "base/machine.h"
#include "base/status.h"
#include "engine/dense_pages.h"
#include "engine/worker_group.h"
#include "format/digest.h"
#include "kv/metadata.h"
#include "transfer/page_mover.h"

namespace hisparse::engine {
namespace {

using base::DType;
using config::DTypeChoice;
using device::Compute;

// Part of every key of cached pages. Raise it when a change alters the bits of a KV row.
constexpr const char* kNumericsVersion = "4";
// Share of the free memory that start-up may take in all, and that the KV cache takes when its size
// is not given.
constexpr double kUsableMemory = 0.95;
constexpr double kDefaultKvShare = 0.4;
// What one re-plan may move for the sake of heat, over all ranks.
constexpr std::int64_t kReplanBytes = std::int64_t{64} << 20;
// Keeps the ledger's sums within 64 bits where the free memory is not known.
constexpr std::int64_t kMaxSlabBytes = std::int64_t{1} << 50;

// Matrices decide: norms are f32 in most files.
Compute automatic_compute(const format::Checkpoint& checkpoint) {
  bool all_f32 = true;
  for (const format::TensorView& tensor : checkpoint.tensors()) {
    if (tensor.shape.size() != 2) continue;
    if (base::block_shape(tensor.dtype).values > 1) return Compute::kInt16;
    all_f32 = all_f32 && tensor.dtype == DType::kF32;
  }
  return all_f32 ? Compute::kF32 : Compute::kBF16;
}

absl::StatusOr<Compute> resolve_compute(DTypeChoice choice, const format::Checkpoint& checkpoint) {
  switch (choice) {
    case DTypeChoice::kF32:
      return Compute::kF32;
    case DTypeChoice::kBF16:
      return Compute::kBF16;
    case DTypeChoice::kInt8:
      if (automatic_compute(checkpoint) == Compute::kInt16) return Compute::kInt8;
      return absl::InvalidArgumentError(
          "--dtype int8 needs a file with quantised matrices: use --dtype auto");
    case DTypeChoice::kAuto:
      break;
  }
  return automatic_compute(checkpoint);
}

DType resolve_kv_dtype(DTypeChoice choice, Compute compute) {
  switch (choice) {
    case DTypeChoice::kF32:
      return DType::kF32;
    case DTypeChoice::kBF16:
      return DType::kBF16;
    case DTypeChoice::kInt8:
    case DTypeChoice::kAuto:
      break;
  }
  return compute == Compute::kF32 ? DType::kF32 : DType::kBF16;
}

absl::StatusOr<std::int64_t> resolve_max_model_len(const LaunchOptions& options,
                                                   const model::ModelSpec& spec) {
  const config::EngineSettings& settings = options.settings;
  if (settings.max_model_len == 0) return spec.max_position;
  if (settings.max_model_len > spec.max_position && options.kv_source == nullptr) {
    return absl::InvalidArgumentError("--max-model-len " + std::to_string(settings.max_model_len) +
                                      " is more than the " + std::to_string(spec.max_position) +
                                      " tokens that the model was made for");
  }
  return settings.max_model_len;
}

kv::ControllerConfig controller_config(const config::EngineSettings& settings,
                                       const LaunchPlan& plan) {
  kv::ControllerConfig config = {
      .page_tokens = plan.worker.page_tokens,
      .resident_slots = plan.worker.resident_slots,
      .host_slots = plan.worker.host_slots,
      .disk_slots = plan.worker.disk_slots,
      .prefix_caching =
          settings.enable_prefix_caching ? kv::PrefixCaching::kOn : kv::PrefixCaching::kOff,
      .mirroring = settings.kv_eager_mirror ? kv::Mirroring::kEager : kv::Mirroring::kOnPressure,
      .replan_tokens = settings.kv_replan_tokens,
      .exchange_pages = std::max<std::int64_t>(1, kReplanBytes / plan.page_bytes)};
  if (config.tiered()) config.heat_window = settings.kv_cache_profiling_window;
  if (settings.kv_disk_persist) config.persistence = kv::Persistence::kOn;
  return config;
}

// Pages of the slab: what was asked for, or what the longest requests may need within a share of
// the free memory and beside the `rest` of the configuration.
absl::StatusOr<std::int32_t> resolve_slots(const config::EngineSettings& settings,
                                           const LaunchPlan& plan, std::int64_t rest) {
  const std::int64_t wanted =
      static_cast<std::int64_t>(settings.max_num_seqs) * plan.worker.pages_per_sequence;
  std::int64_t slots = wanted;
  if (settings.kv_cache_memory_bytes > 0) {
    slots = settings.kv_cache_memory_bytes / plan.page_bytes;
  } else if (const std::int64_t available = base::available_memory(); available > 0) {
    const auto part_of_available = [available](double share) {
      return static_cast<std::int64_t>(share * static_cast<double>(available));
    };
    const std::int64_t room =
        std::min(part_of_available(kDefaultKvShare), part_of_available(kUsableMemory) - rest);
    const std::int64_t page_bytes =
        plan.page_bytes + kv::metadata_bytes_per_slot(controller_config(settings, plan));
    slots = std::min(wanted, room / page_bytes);
  }
  if (slots < 1) {
    return absl::ResourceExhaustedError(
        "the KV cache has no room for one page of " + std::to_string(plan.page_bytes) +
        " bytes: raise --kv-cache-memory-bytes or lower --block-size");
  }
  const std::int64_t countable = std::min<std::int64_t>(std::numeric_limits<std::int32_t>::max(),
                                                        kMaxSlabBytes / plan.page_bytes);
  return static_cast<std::int32_t>(std::min(slots, countable));
}

// Pages of the lower tiers.
absl::Status plan_tiers(const config::EngineSettings& settings, const transfer::PageShape& page,
                        LaunchPlan& plan) {
  if (settings.kv_tiering == config::KvTiering::kOff) return absl::OkStatus();
  constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
  const auto host_bytes = static_cast<std::int64_t>(settings.swap_space * kGibibyte);
  plan.disk_page_bytes = plan.ranks * transfer::DiskPool::file_bytes(1, page);
  const auto slots = [](std::int64_t bytes, std::int64_t page_bytes) {
    return static_cast<std::int32_t>(
        std::min<std::int64_t>(bytes / page_bytes, std::numeric_limits<std::int32_t>::max() / 4));
  };
  plan.worker.host_slots = slots(host_bytes, plan.page_bytes);
  plan.worker.disk_slots = slots(settings.kv_disk_space, plan.disk_page_bytes);
  plan.worker.disk_folder = settings.kv_disk_path;
  plan.worker.disk_io = settings.kv_disk_io;
  if (settings.kv_disk_persist) plan.worker.disk_files = DiskFiles::kKept;
  if (plan.worker.disk_slots > 0) plan.worker.model.pages = model::PageAccess::kWindowed;
  if (settings.kv_cache_profiling_window > 0) {
    plan.worker.observed_rows = sched::kMaxObservations;
  }
  if (host_bytes > 0 && plan.worker.host_slots == 0) {
    return absl::InvalidArgumentError("--swap-space does not hold one page of " +
                                      std::to_string(plan.page_bytes) + " bytes");
  }
  if (settings.kv_disk_space > 0 && plan.worker.disk_slots == 0) {
    return absl::InvalidArgumentError("--kv-disk-space does not hold one page of " +
                                      std::to_string(plan.disk_page_bytes) + " bytes");
  }
  return absl::OkStatus();
}

absl::StatusOr<base::Ledger> plan_all_ranks(const format::Checkpoint& checkpoint,
                                            const config::EngineSettings& settings,
                                            const LaunchPlan& plan) {
  base::Ledger ledger;
  for (std::int32_t rank = 0; rank < plan.ranks; ++rank) {
    HS_ASSIGN_OR_RETURN(const model::Shard part, model::make_shard(plan.spec, rank, plan.ranks));
    ledger +=
        plan_worker_memory(checkpoint, plan.spec, plan.worker, part, device::cpu_weight_bytes);
  }
  ledger[base::MemoryOwner::kMetadata] = kv::metadata_bytes(
      controller_config(settings, plan), {.sequences = plan.worker.max_sequences,
                                          .pages_per_sequence = plan.worker.pages_per_sequence});
  return ledger;
}

// `launched` knows its plan, its store and the devices.
CoreConfig core_config(const format::Checkpoint& checkpoint, const LaunchOptions& options,
                       const LaunchedEngine& launched) {
  const LaunchPlan& plan = launched.plan;
  CoreConfig core;
  core.scheduler = {.max_batched_tokens = plan.worker.model.max_rows,
                    .max_sequences = plan.worker.max_sequences,
                    .max_preemptions = options.settings.max_preemptions};
  core.kv = controller_config(options.settings, plan);
  core.model_digest = checkpoint.digest();
  // A later process may come with a file that differs anywhere.
  if (launched.store != nullptr) {
    core.model_digest += "/" + format::content_digest(checkpoint.tensors());
  }
  core.numerics = std::string(kNumericsVersion) + "/" +
                  std::string(device::name_of(plan.worker.model.compute)) + "/" +
                  std::string(base::name_of(plan.worker.model.kv_dtype)) + "/" +
                  launched.isa_level + "/" + std::to_string(plan.ranks);
  if (plan.worker.kv_source != nullptr) {
    core.prompt_rows = PromptRows::kInjected;
    core.numerics += "/injected";  // never taken for what the model computes
  }
  core.end_tokens = plan.spec.end_tokens;
  for (base::TokenId token : options.end_tokens) {
    if (std::ranges::find(core.end_tokens, token) == core.end_tokens.end()) {
      core.end_tokens.push_back(token);
    }
  }
  core.max_model_len = plan.max_model_len;
  core.vocabulary = plan.spec.vocabulary;
  return core;
}

// What an earlier process left in the folder, for the controller.
absl::StatusOr<std::vector<kv::PersistedPage>> load_pages(transfer::PageStore& store,
                                                          const WorkerGroup& workers,
                                                          CoreConfig& core) {
  std::vector<transfer::DiskPool*> disks;
  for (const transfer::RankMemory& memory : workers.memories()) disks.push_back(memory.disk);
  HS_ASSIGN_OR_RETURN(std::vector<kv::PersistedPage> pages,
                      store.load({.model_digest = core.model_digest,
                                  .numerics = core.numerics,
                                  .page_tokens = core.kv.page_tokens},
                                 disks));
  core.kv.first_transfer = store.first_write();
  return pages;
}

absl::Status check_memory(const base::Ledger& ledger, DTypeChoice dtype) {
  const std::int64_t available = base::available_memory();
  if (available == 0 ||
      static_cast<double>(ledger.total()) <= kUsableMemory * static_cast<double>(available)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      "the configuration needs " + describe_bytes(ledger.total()) + ", and of " +
      describe_bytes(available) + " of free memory at most 95 % may be taken (" + describe(ledger) +
      "): lower --kv-cache-memory-bytes, --swap-space, --max-num-batched-tokens or --max-num-seqs" +
      (dtype == DTypeChoice::kF32 || dtype == DTypeChoice::kBF16 ? ", or use --dtype auto" : ""));
}

}  // namespace

std::string describe_bytes(std::int64_t bytes) {
  constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f GiB", static_cast<double>(bytes) / kGibibyte);
  return text;
}

std::string describe(const base::Ledger& ledger) {
  std::string text;
  for (std::size_t i = 0; i < base::kMemoryOwners; ++i) {
    const auto owner = static_cast<base::MemoryOwner>(i);
    text += std::string(text.empty() ? "" : ", ") + std::string(name_of(owner)) + " " +
            describe_bytes(ledger[owner]);
  }
  return text;
}

std::int64_t usable_memory() {
  return static_cast<std::int64_t>(kUsableMemory * static_cast<double>(base::available_memory()));
}

absl::StatusOr<LaunchPlan> plan_launch(const format::Checkpoint& checkpoint,
                                       const LaunchOptions& options) {
  const config::EngineSettings& settings = options.settings;
  LaunchPlan plan;
  HS_ASSIGN_OR_RETURN(plan.spec, model::read_model_spec(checkpoint));
  plan.ranks = settings.tensor_parallel_size;
  HS_ASSIGN_OR_RETURN(const model::Shard shard, model::make_shard(plan.spec, 0, plan.ranks));
  plan.threads = settings.threads > 0 ? settings.threads : base::available_cores();
  HS_ASSIGN_OR_RETURN(plan.max_model_len, resolve_max_model_len(options, plan.spec));

  WorkerOptions& worker = plan.worker;
  HS_ASSIGN_OR_RETURN(worker.model.compute, resolve_compute(settings.dtype, checkpoint));
  worker.model.kv_dtype = resolve_kv_dtype(settings.kv_cache_dtype, worker.model.compute);
  worker.model.max_rows = settings.max_num_batched_tokens;
  worker.model.max_logit_rows = settings.max_num_seqs;
  worker.page_tokens = settings.block_size;
  worker.max_sequences = settings.max_num_seqs;
  worker.pages_per_sequence = (plan.max_model_len + settings.block_size - 1) / settings.block_size;
  worker.freed_pages = options.freed_pages;
  worker.stream_half_bytes = options.stream_half_bytes;
  worker.observe_logits = options.observe_logits;
  worker.kv_source = options.kv_source;
  const kv::PageLayout layout(dense_cache_group(plan.spec, shard, worker.model.kv_dtype),
                              worker.page_tokens);
  plan.page_bytes = plan.ranks * layout.page_bytes();
  HS_RETURN_IF_ERROR(
      plan_tiers(settings, {.layers = layout.layers(), .layer_bytes = layout.layer_bytes()}, plan));
  // First without a slab: what it must leave room for.
  HS_ASSIGN_OR_RETURN(const base::Ledger rest, plan_all_ranks(checkpoint, settings, plan));
  HS_ASSIGN_OR_RETURN(worker.resident_slots, resolve_slots(settings, plan, rest.total()));
  HS_ASSIGN_OR_RETURN(plan.ledger, plan_all_ranks(checkpoint, settings, plan));
  HS_RETURN_IF_ERROR(check_memory(plan.ledger, settings.dtype));
  return plan;
}

absl::StatusOr<LaunchedEngine> launch(const format::Checkpoint& checkpoint, const LaunchPlan& plan,
                                      const LaunchOptions& options) {
  LaunchedEngine launched;
  launched.plan = plan;
  launched.pool = std::make_unique<base::ThreadPool>(plan.threads);
  if (plan.worker.disk_files == DiskFiles::kKept) {
    HS_ASSIGN_OR_RETURN(launched.store, transfer::PageStore::open(plan.worker.disk_folder));
  }
  HS_ASSIGN_OR_RETURN(std::unique_ptr<WorkerGroup> workers,
                      WorkerGroup::start(checkpoint, plan.spec,
                                         {.worker = plan.worker,
                                          .ranks = plan.ranks,
                                          .make_device =
                                              [&](std::int32_t) {
                                                return device::make_cpu_device(*launched.pool,
                                                                               options.device);
                                              }},
                                         options.progress));
  launched.isa_level = workers->isa_level();
  EngineConfig config;
  config.core = core_config(checkpoint, options, launched);
  std::vector<kv::PersistedPage> persisted;
  if (launched.store != nullptr) {
    HS_ASSIGN_OR_RETURN(persisted, load_pages(*launched.store, *workers, config.core));
  }
  config.max_live_requests = options.max_live_requests;
  config.planned = plan.ledger;
  config.page_bytes = plan.page_bytes;
  std::unique_ptr<transfer::Mover> mover = std::make_unique<transfer::NullMover>();
  if (config.core.kv.tiered()) {
    HS_ASSIGN_OR_RETURN(mover,
                        transfer::PageMover::create(workers->memories(), launched.store.get()));
  }
  launched.engine = std::make_unique<Engine>(config, std::move(workers), std::move(mover),
                                             options.token_bytes, persisted);
  return launched;
}

}  // namespace hisparse::engine
