#include "engine/worker.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "engine/dense_pages.h"
#include "transfer/page_mover.h"

namespace hisparse::engine {
namespace {

using base::MemoryOwner;

// Every byte 0xFF is a NaN in f32 and in bf16.
constexpr std::byte kPoison{0xFF};

// Bytes of the buffers that Worker itself allocates; the one place that both the plan and the
// allocation read.
struct WorkerBytes {
  std::int64_t slab, host, page_staging, block_table, tokens, sequence_slots, positions, logit_rows,
      samples, sampled;

  WorkerBytes(const WorkerOptions& options, const kv::PageLayout& layout) {
    const auto size = [](std::size_t bytes) { return static_cast<std::int64_t>(bytes); };
    const std::int64_t rows = options.model.max_rows;
    const std::int64_t logits = options.model.max_logit_rows;
    slab = options.resident_slots * layout.page_bytes();
    host = options.host_slots * layout.page_bytes();
    const std::int64_t slice_bytes =
        transfer::DiskPool::file_bytes(1, {.layers = 1, .layer_bytes = layout.layer_bytes()});
    const PageStream::Shape stream = {.sequences = options.max_sequences,
                                      .page_tokens = layout.page_tokens(),
                                      .slice_bytes = slice_bytes,
                                      .half_bytes = options.stream_half_bytes};
    page_staging = options.disk_slots == 0 ? 0 : stream.staging_bytes();
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

// What Device::allocate_host takes for its alignment.
std::int64_t host_bytes(std::int64_t bytes) {
  return bytes == 0 ? 0 : bytes + device::kHostAlignment - 1;
}

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
  ledger[MemoryOwner::kKvHost] = host_bytes(bytes.host);
  ledger[MemoryOwner::kStaging] = kPhases * bytes.phase_slot() + host_bytes(bytes.page_staging);
  if (shard.rank == 0) {
    ledger[MemoryOwner::kStaging] +=
        PageObserver::bytes(options.observed_rows, options.pages_per_sequence);
  }
  if (options.disk_slots > 0) {
    ledger[MemoryOwner::kStaging] +=
        transfer::PageMover::kThreadsPerRank *
        host_bytes(transfer::PageCopier::staging_bytes(
            {.layers = layout.layers(), .layer_bytes = layout.layer_bytes()}));
  }
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
  if (options.kv_source != nullptr) worker->make_injector(spec, context.shard);
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
  return allocate_tiers();
}

absl::Status Worker::allocate_tiers() {
  on_disk_.resize(static_cast<std::size_t>(options_.max_sequences));
  if (options_.host_slots > 0) {
    const std::int64_t bytes = WorkerBytes(options_, layout_).host;
    HS_ASSIGN_OR_RETURN(
        host_, device_.allocate_host(static_cast<std::size_t>(bytes), MemoryOwner::kKvHost));
  }
  if (options_.observed_rows > 0 && communicator_.rank() == 0) {
    HS_ASSIGN_OR_RETURN(page_observer_,
                        PageObserver::create({.device = &device_,
                                              .rows = options_.observed_rows,
                                              .pages_per_sequence = options_.pages_per_sequence,
                                              .page_tokens = options_.page_tokens,
                                              .layers = layout_.layers()}));
  }
  if (options_.disk_slots == 0) return absl::OkStatus();
  transfer::DiskPool::Place place = {.folder = options_.disk_folder, .kept_as = {}};
  if (options_.disk_files == DiskFiles::kKept) {
    place.kept_as = transfer::PageStore::file_name(communicator_.rank());
  }
  HS_ASSIGN_OR_RETURN(disk_, transfer::DiskPool::create(place, options_.disk_slots, page_shape()));
  HS_ASSIGN_OR_RETURN(page_stream_,
                      PageStream::create({.device = &device_,
                                          .disk = disk_.get(),
                                          .layout = layout_,
                                          .block_table = block_table_.as<std::uint64_t>(),
                                          .pages_per_sequence = options_.pages_per_sequence,
                                          .sequences = options_.max_sequences,
                                          .half_bytes = options_.stream_half_bytes,
                                          .disk_io = options_.disk_io}));
  return absl::OkStatus();
}

void Worker::make_injector(const model::ModelSpec& spec, const model::Shard& shard) {
  injector_ = std::make_unique<KvInjector>(
      KvInjector::Options{.source = options_.kv_source,
                          .device = &device_,
                          .block_table = block_table_.as<std::uint64_t>(),
                          .pages_per_sequence = options_.pages_per_sequence,
                          .geometry = geometry_,
                          .shape = {.tokens = {},
                                    .first_kv_head = shard.first_kv_head,
                                    .kv_heads = shard.kv_heads,
                                    .head_dim = spec.head_dim,
                                    .dtype = options_.model.kv_dtype,
                                    .keys = {},
                                    .values = {}}});
}

transfer::PageShape Worker::page_shape() const {
  return {.layers = layout_.layers(), .layer_bytes = layout_.layer_bytes()};
}

transfer::RankMemory Worker::memory() const {
  return {.device = &device_,
          .page = page_shape(),
          .slab = slab_.as<std::byte>(),
          .host = host_.on_device(),
          .disk = disk_.get()};
}

// Of a page that is read in place.
std::uint64_t Worker::page_address(const kv::Location& location) const {
  HS_CHECK(location.tier != kv::Tier::kDisk);
  const device::DevicePtr<std::byte> base =
      location.tier == kv::Tier::kResident ? slab_.as<std::byte>() : host_.on_device();
  return (base + location.slot.value() * layout_.page_bytes()).address();
}

void Worker::poison_freed(const sched::StepPlan& plan) {
  if (options_.freed_pages == FreedPages::kLeave) return;
  for (const kv::Location& page : plan.freed) {
    if (page.tier == kv::Tier::kDisk) {
      disk_->adopt(page.slot, transfer::DiskPool::kNeverWritten);
      continue;
    }
    device_.fill(device::DevicePtr<std::byte>(page_address(page)), kPoison,
                 static_cast<std::size_t>(layout_.page_bytes()), *stream_);
  }
}

void Worker::update_block_table(const sched::StepPlan& plan, PhaseSlot& phase) {
  phase.table_entries.clear();
  phase.table_entries.reserve(plan.deltas.size());
  for (const sched::BlockTableDelta& delta : plan.deltas) {
    auto& on_disk = on_disk_[static_cast<std::size_t>(delta.sequence_slot)];
    if (delta.location.tier == kv::Tier::kDisk) {
      on_disk[delta.page] = delta.location.slot;
      phase.table_entries.push_back(0);  // PageStream sets it
    } else {
      on_disk.erase(delta.page);
      phase.table_entries.push_back(page_address(delta.location));
    }
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
  phase.tokens.clear();
  phase.sequence_slots.clear();
  phase.positions.clear();
  phase.last_rows.clear();
  for (const sched::StepRows& rows : plan.rows) {
    for (std::int32_t i = rows.injected; i < rows.count; ++i) {
      phase.tokens.push_back(plan.tokens[static_cast<std::size_t>(rows.tokens_begin + i)]);
      phase.sequence_slots.push_back(rows.sequence_slot);
      phase.positions.push_back(rows.first + i);
    }
    phase.last_rows.push_back(static_cast<std::int32_t>(phase.tokens.size()) - 1);
  }
  stage_samples(plan, phase);
  upload(device_, phase.tokens, phase.device_tokens, *stream_);
  upload(device_, phase.sequence_slots, phase.device_sequence_slots, *stream_);
  upload(device_, phase.positions, phase.device_positions, *stream_);
  upload(device_, phase.logit_rows, phase.device_logit_rows, *stream_);
  upload(device_, phase.samples, phase.device_samples, *stream_);
}

void Worker::stage_samples(const sched::StepPlan& plan, PhaseSlot& phase) {
  phase.logit_rows.clear();
  phase.samples.clear();
  for (const sched::StepSample& sample : plan.samples) {
    phase.logit_rows.push_back(phase.last_rows[static_cast<std::size_t>(sample.row)]);
    phase.samples.push_back({.temperature = sample.temperature,
                             .top_p = sample.top_p,
                             .top_k = sample.top_k,
                             .reserved = 0,
                             .seed = sample.seed,
                             .counter = sample.counter});
  }
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

// Of the pages that the rows of the step read. Injected ones read nothing.
std::vector<SpilledPage> Worker::pages_on_disk(const sched::StepPlan& plan) const {
  std::vector<SpilledPage> pages;
  for (const sched::StepRows& rows : plan.rows) {
    if (rows.injected == rows.count) continue;
    const std::int64_t end = (rows.first + rows.count - 1) / options_.page_tokens + 1;
    for (const auto& [page, slot] : on_disk_[static_cast<std::size_t>(rows.sequence_slot)]) {
      if (page >= end) break;
      pages.push_back({.sequence_slot = rows.sequence_slot, .page = page, .slot = slot});
    }
  }
  return pages;
}

void Worker::forward(const sched::StepPlan& plan, const PhaseSlot& phase,
                     model::PageWindows* windows) {
  std::span<const model::PageProbe> probes;
  if (observes(plan)) probes = page_observer_->begin(plan, phase.last_rows, on_disk_, *stream_);
  model_->forward(
      {.tokens = phase.device_tokens.as<const base::TokenId>(),
       .placement = {.sequence_slots = phase.device_sequence_slots.as<const std::int32_t>(),
                     .positions = phase.device_positions.as<const std::int64_t>(),
                     .rows = static_cast<std::int64_t>(phase.tokens.size())},
       .logit_rows = phase.device_logit_rows.as<const std::int32_t>(),
       .logit_count = static_cast<std::int64_t>(plan.samples.size()),
       .page_addresses = block_table_.as<const std::uint64_t>(),
       .pages_per_sequence = options_.pages_per_sequence,
       .windows = windows,
       .probes = probes},
      geometry_, *stream_);
  if (observes(plan)) page_observer_->fetch(*stream_);
}

bool Worker::observes(const sched::StepPlan& plan) const {
  return page_observer_ != nullptr && !plan.observations.empty();
}

void Worker::note_reads(const sched::StepPlan& plan, StepResult& result) {
  for (const base::SlotId slot : page_stream_->finish()) {
    result.bad_pages.push_back({.tier = kv::Tier::kDisk, .slot = slot});
  }
  const PageStream::Totals totals = page_stream_->take_totals();
  // Every row is a request's last token, and gives it the next one.
  const bool decode = plan.samples.size() == plan.tokens.size();
  (decode ? streamed_.decode_bytes : streamed_.prefill_bytes) += totals.bytes;
  (decode ? streamed_.decode_wait : streamed_.prefill_wait) += totals.wait;
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
  if (injector_) result.status = injector_->inject(plan, *stream_);
  if (!result.status.ok()) return result;
  const std::vector<SpilledPage> spilled = pages_on_disk(plan);
  if (!spilled.empty()) page_stream_->begin(spilled);
  if (!phase.tokens.empty()) {
    forward(plan, phase, spilled.empty() ? nullptr : page_stream_.get());
  }
  if (communicator_.rank() == 0) sample(phase);
  phase.done = device_.record(*stream_);
  result.status = device_.synchronize(phase.done);
  if (!spilled.empty()) note_reads(plan, result);
  if (result.status.ok()) result.status = communicator_.status();
  if (communicator_.rank() == 0) result.tokens = phase.sampled;
  if (observes(plan)) result.observed = page_observer_->finish();
  // What came of bad pages is void.
  if (communicator_.rank() == 0 && result.bad_pages.empty()) show_logits(plan);
  result.counters = device_.counters();
  result.streamed = streamed_;
  return result;
}

}  // namespace hisparse::engine
