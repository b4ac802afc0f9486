#include "engine/worker.h"

#include <span>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "engine/dense_pages.h"

namespace hisparse::engine {
namespace {

using base::MemoryOwner;

// Every byte 0xFF is a NaN in f32 and in bf16.
constexpr std::byte kPoison{0xFF};

// Bytes of the buffers that Worker itself allocates; the one place that both the plan and the
// allocation read.
struct WorkerBytes {
  std::int64_t slab, block_table, tokens, sequence_slots, positions, logit_rows, samples, sampled;

  WorkerBytes(const WorkerOptions& options, const kv::PageLayout& layout) {
    const auto size = [](std::size_t bytes) { return static_cast<std::int64_t>(bytes); };
    const std::int64_t rows = options.model.max_rows;
    const std::int64_t logits = options.model.max_logit_rows;
    slab = options.resident_slots * layout.page_bytes();
    block_table = options.max_sequences * options.pages_per_sequence * size(sizeof(std::uint64_t));
    tokens = rows * size(sizeof(base::TokenId));
    sequence_slots = rows * size(sizeof(std::int32_t));
    positions = rows * size(sizeof(std::int64_t));
    logit_rows = logits * size(sizeof(std::int32_t));
    samples = logits * size(sizeof(device::SampleRow));
    sampled = logits * size(sizeof(base::TokenId));
  }

  std::int64_t phase_slot() const {
    return tokens + sequence_slots + positions + logit_rows + samples + sampled;
  }
};

template <typename T>
void upload(device::Device& device, const std::vector<T>& host, const device::Buffer& target,
            device::Stream& stream) {
  if (host.empty()) return;
  device.copy_to_device(std::as_bytes(std::span(host)), target.as<std::byte>(), stream);
}

}  // namespace

base::Ledger plan_worker_memory(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                                const WorkerOptions& options, const model::Shard& shard,
                                const model::WeightBytes& weight_bytes) {
  constexpr int kPhases = 2;
  const kv::PageLayout layout(dense_cache_group(spec, shard, options.model.kv_dtype),
                              options.page_tokens);
  const WorkerBytes bytes(options, layout);
  base::Ledger ledger = model::plan_memory(checkpoint, spec, options.model, shard, weight_bytes);
  ledger[MemoryOwner::kKvSlab] = bytes.slab;
  ledger[MemoryOwner::kTables] = bytes.block_table;
  ledger[MemoryOwner::kStaging] = kPhases * bytes.phase_slot();
  return ledger;
}

absl::StatusOr<std::unique_ptr<Worker>> Worker::create(const format::Checkpoint& checkpoint,
                                                       const model::ModelSpec& spec,
                                                       const WorkerOptions& options,
                                                       const model::RankModel::Context& context,
                                                       const model::LoadProgress& progress) {
  const kv::PageLayout layout(dense_cache_group(spec, context.shard, options.model.kv_dtype),
                              options.page_tokens);
  std::unique_ptr<Worker> worker(new Worker(options, context, layout));
  worker->vocabulary_ = spec.vocabulary;
  worker->geometry_ = page_geometry(layout, spec.layers);
  HS_ASSIGN_OR_RETURN(worker->model_,
                      model::RankModel::load(checkpoint, spec, options.model, context, progress));
  HS_RETURN_IF_ERROR(worker->allocate());
  return worker;
}

Worker::Worker(const WorkerOptions& options, const model::RankModel::Context& context,
               const kv::PageLayout& layout)
    : options_(options),
      device_(*context.device),
      communicator_(*context.communicator),
      layout_(layout),
      stream_(context.device->create_stream()) {}

absl::Status Worker::allocate() {
  const WorkerBytes bytes(options_, layout_);
  const auto allocate_into = [this](device::Buffer& buffer, std::int64_t size, MemoryOwner owner) {
    absl::StatusOr<device::Buffer> result = device_.allocate(static_cast<std::size_t>(size), owner);
    if (result.ok()) buffer = std::move(*result);
    return result.status();
  };
  HS_RETURN_IF_ERROR(allocate_into(slab_, bytes.slab, MemoryOwner::kKvSlab));
  HS_RETURN_IF_ERROR(allocate_into(block_table_, bytes.block_table, MemoryOwner::kTables));
  for (PhaseSlot& phase : phases_) {
    const std::pair<device::Buffer*, std::int64_t> buffers[] = {
        {&phase.device_tokens, bytes.tokens},
        {&phase.device_sequence_slots, bytes.sequence_slots},
        {&phase.device_positions, bytes.positions},
        {&phase.device_logit_rows, bytes.logit_rows},
        {&phase.device_samples, bytes.samples},
        {&phase.device_sampled, bytes.sampled},
    };
    for (const auto& [buffer, size] : buffers) {
      HS_RETURN_IF_ERROR(allocate_into(*buffer, size, MemoryOwner::kStaging));
    }
  }
  return absl::OkStatus();
}

std::uint64_t Worker::page_address(base::SlotId slot) const {
  return (slab_.as<std::byte>() + slot.value() * layout_.page_bytes()).address();
}

void Worker::poison_freed(const sched::StepPlan& plan) {
  if (options_.freed_pages == FreedPages::kLeave) return;
  for (base::SlotId slot : plan.freed) {
    device_.fill(device::DevicePtr<std::byte>(page_address(slot)), kPoison,
                 static_cast<std::size_t>(layout_.page_bytes()), *stream_);
  }
}

void Worker::update_block_table(const sched::StepPlan& plan, PhaseSlot& phase) {
  phase.table_entries.clear();
  phase.table_entries.reserve(plan.deltas.size());
  for (const sched::BlockTableDelta& delta : plan.deltas) {
    phase.table_entries.push_back(page_address(delta.slot));
  }
  // Neighbouring entries go in one copy: a prompt's pages arrive in order.
  for (std::size_t begin = 0; begin < plan.deltas.size();) {
    std::size_t end = begin + 1;
    while (end < plan.deltas.size() &&
           plan.deltas[end].sequence_slot == plan.deltas[begin].sequence_slot &&
           plan.deltas[end].page == plan.deltas[end - 1].page + 1) {
      ++end;
    }
    const std::int64_t entry =
        plan.deltas[begin].sequence_slot * options_.pages_per_sequence + plan.deltas[begin].page;
    const auto entries =
        std::span<const std::uint64_t>(phase.table_entries).subspan(begin, end - begin);
    device_.copy_to_device(
        std::as_bytes(entries),
        device::DevicePtr<std::byte>((block_table_.as<std::uint64_t>() + entry).address()),
        *stream_);
    begin = end;
  }
}

void Worker::stage_rows(const sched::StepPlan& plan, PhaseSlot& phase) {
  phase.tokens = plan.tokens;
  phase.sequence_slots.clear();
  phase.positions.clear();
  for (const sched::StepRows& rows : plan.rows) {
    for (std::int32_t i = 0; i < rows.count; ++i) {
      phase.sequence_slots.push_back(rows.sequence_slot);
      phase.positions.push_back(rows.first + i);
    }
  }
  phase.logit_rows.clear();
  phase.samples.clear();
  for (const sched::StepSample& sample : plan.samples) {
    const sched::StepRows& rows = plan.rows[static_cast<std::size_t>(sample.row)];
    phase.logit_rows.push_back(rows.tokens_begin + rows.count - 1);
    phase.samples.push_back({.temperature = sample.temperature,
                             .top_p = sample.top_p,
                             .top_k = sample.top_k,
                             .reserved = 0,
                             .seed = sample.seed,
                             .counter = sample.counter});
  }
  upload(device_, phase.tokens, phase.device_tokens, *stream_);
  upload(device_, phase.sequence_slots, phase.device_sequence_slots, *stream_);
  upload(device_, phase.positions, phase.device_positions, *stream_);
  upload(device_, phase.logit_rows, phase.device_logit_rows, *stream_);
  upload(device_, phase.samples, phase.device_samples, *stream_);
}

void Worker::sample(PhaseSlot& phase) {
  phase.sampled.assign(phase.samples.size(), 0);
  if (phase.samples.empty()) return;
  device_.sample({.logits = model_->logits(),
                  .rows_params = phase.device_samples.as<const device::SampleRow>(),
                  .tokens = phase.device_sampled.as<base::TokenId>(),
                  .rows = static_cast<std::int64_t>(phase.samples.size()),
                  .vocabulary = vocabulary_},
                 *stream_);
  device_.copy_to_host(phase.device_sampled.as<const std::byte>(),
                       std::as_writable_bytes(std::span(phase.sampled)), *stream_);
}

void Worker::show_logits(const sched::StepPlan& plan) {
  if (!options_.observe_logits || plan.samples.empty()) return;
  std::vector<float> logits(plan.samples.size() * static_cast<std::size_t>(vocabulary_));
  device_.copy_to_host(device::DevicePtr<const std::byte>(model_->logits().address()),
                       std::as_writable_bytes(std::span(logits)), *stream_);
  if (device_.synchronize(device_.record(*stream_)).ok()) options_.observe_logits(plan, logits);
}

StepResult Worker::run(const sched::StepPlan& plan) {
  PhaseSlot& phase = phases_[static_cast<std::size_t>(plan.id.value()) % kPhaseSlots];
  StepResult result{
      .id = plan.id, .status = device_.synchronize(phase.done), .tokens = {}, .counters = {}};
  if (!result.status.ok()) return result;
  HS_CHECK(static_cast<std::int64_t>(plan.tokens.size()) <= options_.model.max_rows);
  HS_CHECK(static_cast<std::int64_t>(plan.samples.size()) <= options_.model.max_logit_rows);

  poison_freed(plan);
  update_block_table(plan, phase);
  stage_rows(plan, phase);
  model_->forward(
      {.tokens = phase.device_tokens.as<const base::TokenId>(),
       .placement = {.sequence_slots = phase.device_sequence_slots.as<const std::int32_t>(),
                     .positions = phase.device_positions.as<const std::int64_t>(),
                     .rows = static_cast<std::int64_t>(plan.tokens.size())},
       .logit_rows = phase.device_logit_rows.as<const std::int32_t>(),
       .logit_count = static_cast<std::int64_t>(plan.samples.size()),
       .page_addresses = block_table_.as<const std::uint64_t>(),
       .pages_per_sequence = options_.pages_per_sequence},
      geometry_, *stream_);
  if (communicator_.rank() == 0) sample(phase);
  phase.done = device_.record(*stream_);
  result.status = device_.synchronize(phase.done);
  if (result.status.ok()) result.status = communicator_.status();
  if (communicator_.rank() == 0) result.tokens = phase.sampled;
  if (communicator_.rank() == 0) show_logits(plan);
  result.counters = device_.counters();
  return result;
}

}  // namespace hisparse::engine
