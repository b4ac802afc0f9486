#include "engine/page_observer.h"

#include "base/check.h"
#include "base/status.h"

namespace hisparse::engine {

std::int64_t PageObserver::bytes(std::int32_t rows, std::int64_t pages_per_sequence) {
  return rows * pages_per_sequence *
         static_cast<std::int64_t>(sizeof(std::int32_t) + sizeof(float));
}

absl::StatusOr<std::unique_ptr<PageObserver>> PageObserver::create(const Options& options) {
  std::unique_ptr<PageObserver> observer(new PageObserver(options));
  const auto bytes =
      static_cast<std::size_t>(options.rows * options.pages_per_sequence) * sizeof(std::int32_t);
  static_assert(sizeof(float) == sizeof(std::int32_t));
  HS_ASSIGN_OR_RETURN(observer->device_pages_,
                      options.device->allocate(bytes, base::MemoryOwner::kStaging));
  HS_ASSIGN_OR_RETURN(observer->device_masses_,
                      options.device->allocate(bytes, base::MemoryOwner::kStaging));
  return observer;
}

model::PageProbe PageObserver::probe(const sched::StepRows& rows, std::int32_t row,
                                     std::int64_t turn, PagesOnDisk on_disk) {
  const std::int64_t position = rows.first + rows.count - 1;
  const auto& spilled = on_disk[static_cast<std::size_t>(rows.sequence_slot)];
  const auto begin = static_cast<std::int64_t>(pages_.size());
  for (std::int32_t page = 0; page <= position / options_.page_tokens; ++page) {
    if (!spilled.contains(page)) pages_.push_back(page);
  }
  return {.layer = static_cast<std::int32_t>(turn % options_.layers),
          .row = row,
          .sequence_slot = rows.sequence_slot,
          .position = position,
          .pages = device_pages_.as<const std::int32_t>() + begin,
          .masses = device_masses_.as<float>() + begin,
          .count = static_cast<std::int64_t>(pages_.size()) - begin};
}

std::span<const model::PageProbe> PageObserver::begin(const sched::StepPlan& plan,
                                                      std::span<const std::int32_t> last_rows,
                                                      PagesOnDisk on_disk, device::Stream& stream) {
  HS_CHECK(last_rows.size() == plan.rows.size());
  HS_CHECK(static_cast<std::int32_t>(plan.observations.size()) <= options_.rows);
  pages_.clear();
  probes_.clear();
  for (const sched::StepObservation& wanted : plan.observations) {
    const auto at = static_cast<std::size_t>(wanted.row);
    HS_CHECK(plan.rows[at].injected < plan.rows[at].count);
    probes_.push_back(probe(plan.rows[at], last_rows[at], wanted.turn, on_disk));
  }
  options_.device->copy_to_device(std::as_bytes(std::span(pages_)), device_pages_.as<std::byte>(),
                                  stream);
  return probes_;
}

void PageObserver::fetch(device::Stream& stream) {
  masses_.assign(pages_.size(), 0.0f);
  options_.device->copy_to_host(device_masses_.as<const std::byte>(),
                                std::as_writable_bytes(std::span(masses_)), stream);
}

std::vector<std::vector<kv::PageMass>> PageObserver::finish() const {
  std::vector<std::vector<kv::PageMass>> observed;
  std::size_t at = 0;
  for (const model::PageProbe& probe : probes_) {
    std::vector<kv::PageMass>& masses = observed.emplace_back();
    for (std::int64_t i = 0; i < probe.count; ++i, ++at) {
      masses.push_back({.page = pages_[at], .mass = masses_[at]});
    }
  }
  return observed;
}

}  // namespace hisparse::engine
