#include "engine/kv_injector.h"

#include <algorithm>

#include "base/status.h"

namespace hisparse::engine {

KvInjector::KvInjector(const Options& options)
    : options_(options),
      row_bytes_(std::int64_t{options.shape.kv_heads} * options.shape.head_dim *
                 base::block_shape(options.shape.dtype).bytes),
      staging_(2 * options.geometry.layers.size() *
               static_cast<std::size_t>(options.geometry.page_tokens * row_bytes_)) {}

absl::Status KvInjector::inject(const sched::StepPlan& plan, device::Stream& stream) {
  for (const sched::StepRows& rows : plan.rows) {
    if (rows.injected == 0) continue;
    const auto tokens = std::span(plan.tokens)
                            .subspan(static_cast<std::size_t>(rows.tokens_begin),
                                     static_cast<std::size_t>(rows.injected));
    HS_RETURN_IF_ERROR(inject_rows(rows, tokens, stream));
  }
  return absl::OkStatus();
}

absl::Status KvInjector::inject_rows(const sched::StepRows& rows,
                                     std::span<const base::TokenId> tokens,
                                     device::Stream& stream) {
  const std::int64_t page_tokens = options_.geometry.page_tokens;
  const std::int64_t end = rows.first + rows.injected;
  const std::int64_t first_page = rows.first / page_tokens;
  addresses_.resize(static_cast<std::size_t>((end - 1) / page_tokens + 1 - first_page));
  const std::int64_t entry = rows.sequence_slot * options_.pages_per_sequence + first_page;
  options_.device->copy_to_host(
      device::DevicePtr<const std::byte>((options_.block_table + entry).address()),
      std::as_writable_bytes(std::span(addresses_)), stream);
  HS_RETURN_IF_ERROR(options_.device->synchronize(options_.device->record(stream)));
  std::int64_t at = rows.first;
  for (const std::uint64_t address : addresses_) {
    const std::int64_t page_end = std::min(end, (at / page_tokens + 1) * page_tokens);
    HS_RETURN_IF_ERROR(
        inject_page({.first = at,
                     .tokens = tokens.subspan(static_cast<std::size_t>(at - rows.first),
                                              static_cast<std::size_t>(page_end - at)),
                     .address = address},
                    stream));
    at = page_end;
  }
  return absl::OkStatus();
}

absl::Status KvInjector::inject_page(const PageRows& rows, device::Stream& stream) {
  const auto bytes = static_cast<std::int64_t>(rows.tokens.size()) * row_bytes_;
  const std::int64_t skipped = rows.first % options_.geometry.page_tokens * row_bytes_;
  std::span<std::byte> free = staging_;
  const auto take = [&free, bytes] {
    const auto taken = free.first(static_cast<std::size_t>(bytes));
    free = free.subspan(taken.size());
    return taken;
  };
  for (std::size_t layer = 0; layer < options_.geometry.layers.size(); ++layer) {
    KvRows wanted = options_.shape;
    wanted.layer = static_cast<std::int32_t>(layer);
    wanted.first = rows.first;
    wanted.tokens = rows.tokens;
    wanted.keys = take();
    wanted.values = take();
    options_.source->fill(wanted);
    const device::DevicePtr<std::byte> page(rows.address);
    const model::LayerOffsets& offsets = options_.geometry.layers[layer];
    options_.device->copy_to_device(wanted.keys, page + (offsets.k + skipped), stream);
    options_.device->copy_to_device(wanted.values, page + (offsets.v + skipped), stream);
  }
  return options_.device->synchronize(options_.device->record(stream));
}

}  // namespace hisparse::engine
