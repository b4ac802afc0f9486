#include "engine/worker_group.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace hisparse::engine {
namespace {

// Steps that may wait at a rank: one for each phase slot.
constexpr std::size_t kPlansPerRank = 2;

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerGroup>> WorkerGroup::start(
    const format::Checkpoint& checkpoint, const model::ModelSpec& spec, const Options& options,
    const model::LoadProgress& progress) {
  std::vector<model::Shard> shards;
  for (std::int32_t rank = 0; rank < options.ranks; ++rank) {
    HS_ASSIGN_OR_RETURN(shards.emplace_back(), model::make_shard(spec, rank, options.ranks));
  }
  std::unique_ptr<WorkerGroup> group(new WorkerGroup);
  std::vector<device::Device*> devices;
  for (std::int32_t rank = 0; rank < options.ranks; ++rank) {
    Rank& entry = group->ranks_.emplace_back();
    entry.plans =
        std::make_unique<base::BoundedQueue<std::shared_ptr<const sched::StepPlan>>>(kPlansPerRank);
    HS_ASSIGN_OR_RETURN(entry.device, options.make_device(rank));
    devices.push_back(entry.device.get());
  }
  auto communicators = options.ranks == 1 ? std::vector<std::unique_ptr<comm::Communicator>>{}
                                          : comm::make_thread_communicators(devices);
  if (options.ranks == 1) communicators.push_back(comm::make_solo_communicator());

  std::vector<absl::Status> loaded(group->ranks_.size());
  std::vector<std::thread> loaders;
  for (std::size_t rank = 0; rank < group->ranks_.size(); ++rank) {
    group->ranks_[rank].communicator = std::move(communicators[rank]);
    loaders.emplace_back([&, rank] {
      Rank& entry = group->ranks_[rank];
      absl::StatusOr<std::unique_ptr<Worker>> worker =
          Worker::create(checkpoint, spec, options.worker,
                         {.device = entry.device.get(),
                          .communicator = entry.communicator.get(),
                          .shard = shards[rank]},
                         rank == 0 ? progress : model::LoadProgress{});
      loaded[rank] = worker.status();
      if (worker.ok()) entry.worker = std::move(*worker);
    });
  }
  for (std::thread& loader : loaders) loader.join();
  for (const absl::Status& status : loaded) HS_RETURN_IF_ERROR(status);
  for (std::size_t rank = 0; rank < group->ranks_.size(); ++rank) {
    group->ranks_[rank].thread = std::thread([raw = group.get(), rank] { raw->run_rank(rank); });
  }
  return group;
}

WorkerGroup::~WorkerGroup() {
  for (Rank& rank : ranks_) rank.plans->close();
  for (Rank& rank : ranks_) {
    if (rank.thread.joinable()) rank.thread.join();
  }
}

void WorkerGroup::submit(std::shared_ptr<const sched::StepPlan> plan) {
  for (Rank& rank : ranks_) {
    HS_CHECK(rank.plans->try_push(std::shared_ptr<const sched::StepPlan>(plan)));
  }
}

void WorkerGroup::run_rank(std::size_t rank) {
  while (std::optional<std::shared_ptr<const sched::StepPlan>> plan = ranks_[rank].plans->pop()) {
    StepResult result = ranks_[rank].worker->run(**plan);
    // The other ranks may be waiting for this one in a collective.
    if (!result.status.ok()) ranks_[rank].communicator->abort(result.status);
    report(rank, std::move(result));
  }
}

void WorkerGroup::report(std::size_t rank, StepResult result) {
  StepResult complete;
  {
    std::lock_guard lock(mutex_);
    joined_.id = result.id;
    if (joined_.status.ok()) joined_.status = result.status;
    joined_.streamed += result.streamed;
    for (const kv::Location& page : result.bad_pages) {
      auto& bad = joined_.bad_pages;
      if (std::ranges::find(bad, page) == bad.end()) bad.push_back(page);
    }
    if (rank == 0) {
      joined_.tokens = std::move(result.tokens);
      joined_.observed = std::move(result.observed);
      joined_.counters = result.counters;
    }
    if (++reports_ < ranks_.size()) return;
    reports_ = 0;
    complete = std::exchange(joined_, {});
  }
  done_(std::move(complete));
}

base::Ledger WorkerGroup::allocated() const {
  base::Ledger total;
  for (const Rank& rank : ranks_) total += rank.device->allocated();
  return total;
}

std::vector<transfer::RankMemory> WorkerGroup::memories() const {
  std::vector<transfer::RankMemory> memories;
  for (const Rank& rank : ranks_) memories.push_back(rank.worker->memory());
  return memories;
}

std::string WorkerGroup::isa_level() const { return ranks_.front().device->isa_level(); }

}  // namespace hisparse::engine
