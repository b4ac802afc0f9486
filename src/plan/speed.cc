#include "plan/speed.h"

#include <algorithm>

namespace hisparse::plan {
namespace {

std::optional<double> duration(double bytes, double bandwidth) {
  if (bandwidth <= 0.0) return std::nullopt;
  return bytes / bandwidth;
}

bool selects(const StepShape& shape) { return shape.request.attention == Attention::kLatentSparse; }

double selected_rows(const StepShape& shape, std::int64_t context) {
  return static_cast<double>(std::min(shape.top_k, context));
}

double pages_of(const StepShape& shape, std::int64_t context) {
  const std::int64_t page_tokens = shape.request.page_tokens;
  return static_cast<double>((context + page_tokens - 1) / page_tokens);
}

}  // namespace

std::string_view name_of(Tier tier) {
  switch (tier) {
    case Tier::kResident:
      return "resident";
    case Tier::kHost:
      return "host";
    case Tier::kDisk:
      return "disk";
  }
  return "unknown";
}

std::optional<double> StepCost::seconds() const {
  if (!memory_seconds) return link_bytes > 0.0 ? link_seconds : std::nullopt;
  return std::max(*memory_seconds, link_seconds.value_or(0.0));
}

std::optional<double> StepCost::tokens_per_second() const {
  const std::optional<double> step = seconds();
  if (!step || *step <= 0.0) return std::nullopt;
  return 1.0 / *step;
}

StepCost resident_step(const StepShape& shape, std::int64_t context, std::int64_t batch) {
  const TokenRows& rows = shape.request.rows;
  const auto tokens = static_cast<double>(context);
  const double request = selects(shape)
                             ? tokens * static_cast<double>(rows.stays) +
                                   selected_rows(shape, context) * static_cast<double>(rows.spills)
                             : tokens * static_cast<double>(rows.rank());
  StepCost cost;
  cost.batch = batch;
  cost.memory_bytes =
      shape.weight_bytes(static_cast<double>(batch)) + static_cast<double>(batch) * request;
  cost.memory_seconds = duration(cost.memory_bytes, shape.bandwidths.memory);
  return cost;
}

StepCost host_step(const StepShape& shape, std::int64_t context, std::int64_t batch, double miss) {
  StepCost cost = resident_step(shape, context, batch);
  cost.tier = Tier::kHost;
  cost.miss = selects(shape) ? miss : 1.0;
  const double rows =
      selects(shape) ? miss * selected_rows(shape, context) : static_cast<double>(context);
  cost.link_bytes =
      static_cast<double>(batch) * rows * static_cast<double>(shape.request.rows.spills);
  cost.link_seconds =
      duration(cost.link_bytes, selects(shape) ? shape.bandwidths.gather : shape.bandwidths.stream);
  return cost;
}

StepCost disk_step(const StepShape& shape, std::int64_t context, std::int64_t batch, double miss) {
  StepCost cost = resident_step(shape, context, batch);
  cost.tier = Tier::kDisk;
  cost.miss = selects(shape) ? miss : 1.0;
  const double pages = pages_of(shape, context);
  const double read =
      selects(shape) ? std::min(miss * selected_rows(shape, context), pages) : pages;
  cost.link_bytes =
      static_cast<double>(batch) * read * static_cast<double>(shape.request.disk.bytes);
  cost.link_seconds = duration(cost.link_bytes, shape.bandwidths.disk);
  return cost;
}

MissCost miss_cost(const StepShape& shape, std::int64_t batch, double miss) {
  constexpr double kMicroseconds = 1e6;
  constexpr double kMilliseconds = 1e3;
  MissCost cost;
  cost.miss = miss;
  cost.batch = batch;
  cost.rows_per_layer = miss * static_cast<double>(shape.top_k);
  const double step_bytes = static_cast<double>(batch) * cost.rows_per_layer *
                            static_cast<double>(shape.request.rows.spills);
  const auto layers = static_cast<double>(shape.layers);
  const double gather = step_bytes / shape.bandwidths.gather;
  cost.stream_us_per_layer = kMicroseconds * step_bytes / shape.bandwidths.stream / layers;
  cost.gather_us_per_layer = kMicroseconds * gather / layers;
  cost.gather_ms_per_step = kMilliseconds * gather;
  cost.tokens_per_second = 1.0 / gather;
  return cost;
}

}  // namespace hisparse::plan
