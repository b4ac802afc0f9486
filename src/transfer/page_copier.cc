#include "transfer/page_copier.h"

#include "base/check.h"
#include "base/status.h"

namespace hisparse::transfer {

PageCopier::PageCopier(const RankMemory& memory)
    : memory_(memory), stream_(memory.device->create_stream()) {}

absl::StatusOr<std::unique_ptr<PageCopier>> PageCopier::create(const RankMemory& memory) {
  std::unique_ptr<PageCopier> copier(new PageCopier(memory));
  if (memory.disk != nullptr) {
    const auto bytes = static_cast<std::size_t>(staging_bytes(memory.page));
    HS_ASSIGN_OR_RETURN(copier->staging_,
                        memory.device->allocate_host(bytes, base::MemoryOwner::kStaging));
  }
  return copier;
}

absl::Status PageCopier::copy(const kv::Location& from, const kv::Location& to,
                              std::uint64_t write) {
  const bool disk = from.tier == kv::Tier::kDisk || to.tier == kv::Tier::kDisk;
  if (!disk) return copy_memory(from, to);
  HS_CHECK(memory_.disk != nullptr && from.tier != to.tier);
  return to.tier == kv::Tier::kDisk ? write_to_disk(from, to.slot, write)
                                    : read_from_disk(from.slot, to);
}

device::DevicePtr<std::byte> PageCopier::address(const kv::Location& location) const {
  HS_CHECK(location.tier != kv::Tier::kDisk);
  const auto base = location.tier == kv::Tier::kResident ? memory_.slab : memory_.host;
  return base + location.slot.value() * memory_.page.bytes();
}

absl::Status PageCopier::copy_memory(const kv::Location& from, const kv::Location& to) {
  memory_.device->copy(device::DevicePtr<const std::byte>(address(from).address()), address(to),
                       static_cast<std::size_t>(memory_.page.bytes()), *stream_);
  return memory_.device->synchronize(memory_.device->record(*stream_));
}

absl::Status PageCopier::write_to_disk(const kv::Location& from, base::SlotId slot,
                                       std::uint64_t write) {
  const auto layer_bytes = static_cast<std::size_t>(memory_.page.layer_bytes);
  const auto slice_bytes = static_cast<std::size_t>(memory_.disk->slice_bytes());
  for (std::int32_t layer = 0; layer < memory_.page.layers; ++layer) {
    const auto source = address(from) + layer * memory_.page.layer_bytes;
    const auto slice = static_cast<std::size_t>(layer) * slice_bytes;
    memory_.device->copy_to_host(device::DevicePtr<const std::byte>(source.address()),
                                 staging_.bytes().subspan(slice, layer_bytes), *stream_);
  }
  HS_RETURN_IF_ERROR(memory_.device->synchronize(memory_.device->record(*stream_)));
  return memory_.disk->write(slot, write, staging_.bytes());
}

absl::Status PageCopier::read_from_disk(base::SlotId slot, const kv::Location& to) {
  HS_RETURN_IF_ERROR(memory_.disk->read(slot, staging_.bytes()));
  const auto layer_bytes = static_cast<std::size_t>(memory_.page.layer_bytes);
  const auto slice_bytes = static_cast<std::size_t>(memory_.disk->slice_bytes());
  for (std::int32_t layer = 0; layer < memory_.page.layers; ++layer) {
    const auto slice = static_cast<std::size_t>(layer) * slice_bytes;
    memory_.device->copy_to_device(staging_.bytes().subspan(slice, layer_bytes),
                                   address(to) + layer * memory_.page.layer_bytes, *stream_);
  }
  return memory_.device->synchronize(memory_.device->record(*stream_));
}

}  // namespace hisparse::transfer
