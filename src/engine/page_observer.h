// A sample of what queries look at, for the heat of pages: which pages to ask about, and the
// answers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "device/device.h"
#include "kv/heat.h"
#include "model/rank_model.h"
#include "sched/step_plan.h"

namespace hisparse::engine {

// Owns the memory that the probes of one step read and write. Worker thread; begin(), fetch() and
// finish() in this order, in every step that observes something. The device outlives it.
class PageObserver final {
 public:
  struct Options {
    device::Device* device = nullptr;
    std::int32_t rows = 0;  // observed in a step at the most
    std::int64_t pages_per_sequence = 0;
    std::int32_t page_tokens = 0;
    std::int32_t layers = 0;
  };
  // Pages of each row of the block table that are on disk.
  using PagesOnDisk = std::span<const std::map<std::int32_t, base::SlotId>>;

  static std::int64_t bytes(std::int32_t rows, std::int64_t pages_per_sequence);
  static absl::StatusOr<std::unique_ptr<PageObserver>> create(const Options& options);

  // Probes for the observations of the plan, over the pages that are read in place: no page is
  // brought from disk for this. `last_rows`: for each of the plan's rows, where its last token is
  // among those that are computed, so without the injected ones.
  std::span<const model::PageProbe> begin(const sched::StepPlan& plan,
                                          std::span<const std::int32_t> last_rows,
                                          PagesOnDisk on_disk, device::Stream& stream);
  void fetch(device::Stream& stream);  // behind the step
  // The step has run. [observation]
  std::vector<std::vector<kv::PageMass>> finish() const;

 private:
  explicit PageObserver(const Options& options) : options_(options) {}
  // `row`: where the query is.
  model::PageProbe probe(const sched::StepRows& rows, std::int32_t row, std::int64_t turn,
                         PagesOnDisk on_disk);

  const Options options_;
  device::Buffer device_pages_;   // [rows, pages_per_sequence]
  device::Buffer device_masses_;  // the same
  std::vector<model::PageProbe> probes_;
  std::vector<std::int32_t> pages_;  // of all probes, one after the other
  std::vector<float> masses_;        // the same
};

}  // namespace hisparse::engine
