// Writes the rows of a KvSource into the pages of one rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "device/device.h"
#include "engine/kv_source.h"
#include "model/rank_model.h"
#include "sched/step_plan.h"

namespace hisparse::engine {

// Owns a page of staging. Worker thread; source, device and block table outlive it.
class KvInjector final {
 public:
  struct Options {
    KvSource* source = nullptr;
    device::Device* device = nullptr;
    device::DevicePtr<std::uint64_t> block_table;  // [sequences, pages_per_sequence]
    std::int64_t pages_per_sequence = 0;
    model::PageGeometry geometry;
    KvRows shape;  // heads and dtype of this rank; the rest is not read
  };
  explicit KvInjector(const Options& options);

  // The injected rows of the plan, whose pages are all in the slab by the block table as it is in
  // stream order. They are there when it returns.
  absl::Status inject(const sched::StepPlan& plan, device::Stream& stream);

 private:
  // Rows that lie in one page.
  struct PageRows {
    std::int64_t first = 0;
    std::span<const base::TokenId> tokens;
    std::uint64_t address = 0;  // of the page
  };
  absl::Status inject_rows(const sched::StepRows& rows, std::span<const base::TokenId> tokens,
                           device::Stream& stream);
  absl::Status inject_page(const PageRows& rows, device::Stream& stream);

  const Options options_;
  const std::int64_t row_bytes_;
  std::vector<std::byte> staging_;  // [layers][keys, values][page_tokens][row bytes]
  std::vector<std::uint64_t> addresses_;
};

}  // namespace hisparse::engine
