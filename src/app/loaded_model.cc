#include "app/loaded_model.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "app/startup_phases.h"
#include "base/status.h"

namespace hisparse::app {
namespace {

absl::Status annotate(const absl::Status& status, const std::string& where) {
  return absl::Status(status.code(), where + ": " + std::string(status.message()));
}

absl::Status load_text(LoadedModel& model) {
  constexpr const char* kTemplateKey = "tokenizer.chat_template";
  const format::Metadata& metadata = model.checkpoint->metadata();
  if (model.checkpoint->kind() != format::CheckpointKind::kGguf) {
    return absl::UnimplementedError(
        "tokenizer.json of Hugging Face folders is not supported yet: use a GGUF file of the "
        "model");
  }
  HS_ASSIGN_OR_RETURN(model.tokenizer, text::Tokenizer::from_gguf(metadata));
  if (!metadata.has(kTemplateKey)) return absl::OkStatus();
  HS_ASSIGN_OR_RETURN(const std::string source, metadata.get_string(kTemplateKey));
  absl::StatusOr<std::unique_ptr<const text::ChatTemplate>> parsed =
      text::ChatTemplate::parse(source);
  if (!parsed.ok()) return annotate(parsed.status(), kTemplateKey);
  model.chat_template = std::move(*parsed);
  return absl::OkStatus();
}

std::string_view describe(device::Compute compute) {
  switch (compute) {
    case device::Compute::kF32:
      return "weights and products f32";
    case device::Compute::kBF16:
      return "weights and products bf16";
    case device::Compute::kInt8:
      return "quantised weights as stored, activations of 8 bits with a scale for each 32";
    case device::Compute::kInt16:
      return "quantised weights as stored, activations of 16 bits with a scale for each 32";
  }
  return "";
}

void log_plan(const engine::LaunchPlan& plan) {
  const engine::WorkerOptions& worker = plan.worker;
  spdlog::info(
      "model: {} with {:.1f} M parameters, {} layers, {} heads, {} KV heads of {}, vocabulary {}",
      plan.spec.architecture, static_cast<double>(plan.spec.parameters()) / 1e6, plan.spec.layers,
      plan.spec.heads, plan.spec.kv_heads, plan.spec.head_dim, plan.spec.vocabulary);
  spdlog::info("numerics: {}, KV rows {}, {} rank(s), {} thread(s)", describe(worker.model.compute),
               base::name_of(worker.model.kv_dtype), plan.ranks, plan.threads);
  spdlog::info("KV cache: {} pages of {} tokens ({} tokens in all), at most {} tokens a request",
               engine::kv_cache_tokens(plan) / worker.page_tokens, worker.page_tokens,
               engine::kv_cache_tokens(plan), plan.max_model_len);
  if (worker.host_slots > 0 || worker.disk_slots > 0) {
    spdlog::info("KV tiers: {} pages resident, {} in host memory, {} on disk{}",
                 worker.resident_slots, worker.host_slots, worker.disk_slots,
                 worker.disk_slots > 0 ? " in " + worker.disk_folder : "");
    if (worker.disk_files == engine::DiskFiles::kKept &&
        worker.disk_slots < worker.resident_slots) {
      spdlog::warn(
          "--kv-disk-persist: the disk holds fewer pages than the slab; raise --kv-disk-space to "
          "keep all of them for the next start");
    }
  }
  if (engine::kv_cache_tokens(plan) < plan.max_model_len) {
    spdlog::warn(
        "the KV cache holds fewer tokens than --max-model-len: raise --kv-cache-memory-bytes for "
        "longer requests");
  }
  spdlog::info("memory: {} in all: {}", engine::describe_bytes(plan.ledger.total()),
               engine::describe(plan.ledger));
  const std::int64_t resident = plan.ledger[base::MemoryOwner::kKvSlab];
  const std::int64_t host = plan.ledger[base::MemoryOwner::kKvHost];
  spdlog::info("memory by tier: KV_GPU {} / KV_HOST {} / KV_DISK {} / other {}",
               engine::describe_bytes(resident), engine::describe_bytes(host),
               engine::describe_bytes(worker.disk_slots * plan.disk_page_bytes),
               engine::describe_bytes(plan.ledger.total() - resident - host));
}

// A line at each tenth.
void log_progress(std::int32_t done, std::int32_t layers) {
  constexpr std::int32_t kLines = 10;
  if (done * kLines / layers != (done - 1) * kLines / layers) {
    spdlog::info("loading: {} of {} layers", done, layers);
  }
}

engine::TokenBytes bytes_of(const text::Tokenizer& tokenizer) {
  return [&tokenizer](base::TokenId token) {
    // A vocabulary padded in the weights has ids that the tokenizer does not know.
    return token < tokenizer.vocabulary_size() ? std::string(tokenizer.token_bytes(token))
                                               : std::string();
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedModel>> load_model(const config::EngineSettings& settings,
                                                        const LoadOptions& load) {
  StartupPhases phases;
  auto model = std::make_unique<LoadedModel>();
  HS_ASSIGN_OR_RETURN(model->checkpoint, format::Checkpoint::open(settings.model));
  phases.end("file");
  if (absl::Status status = load_text(*model); !status.ok())
    return annotate(status, settings.model);
  phases.end("tokenizer");

  engine::LaunchOptions options;
  options.settings = settings;
  options.device.isa = settings.cpu_isa;
  options.max_live_requests = load.max_live_requests;
  options.end_tokens = model->tokenizer->end_tokens();
  options.progress = [&load](std::int32_t done, std::int32_t layers) {
    log_progress(done, layers);
    return !load.stop || !load.stop();
  };
  options.token_bytes = load.token_bytes ? load.token_bytes : bytes_of(*model->tokenizer);
  options.kv_source = load.kv_source;
  absl::StatusOr<engine::LaunchPlan> plan = engine::plan_launch(*model->checkpoint, options);
  if (!plan.ok()) return annotate(plan.status(), settings.model);
  log_plan(*plan);
  phases.end("plan");
  if (load.check) HS_RETURN_IF_ERROR(load.check(*plan));
  absl::StatusOr<engine::LaunchedEngine> launched =
      engine::launch(*model->checkpoint, *plan, options);
  if (!launched.ok()) return annotate(launched.status(), settings.model);
  model->launched = std::move(*launched);
  phases.end("weights and threads");
  spdlog::info("ready after {}", phases.summary());
  return model;
}

void wait_until_kept(const engine::Engine& engine) {
  constexpr auto kPatience = std::chrono::seconds(2);
  std::int32_t left = engine.stats()->kv.unpersisted;
  for (auto since = std::chrono::steady_clock::now();
       left > 0 && std::chrono::steady_clock::now() - since < kPatience;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::int32_t now = engine.stats()->kv.unpersisted;
    if (now < left) since = std::chrono::steady_clock::now();
    left = now;
  }
  if (left > 0) spdlog::warn("{} KV pages are not kept for the next start", left);
}

}  // namespace hisparse::app
