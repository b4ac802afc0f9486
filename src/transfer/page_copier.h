// Copies one page of one rank from one tier to another.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/device.h"
#include "kv/transfer.h"
#include "transfer/rank_memory.h"

namespace hisparse::transfer {

// Owns a stream of its own and, with a disk, a page of staging. One thread.
class PageCopier final {
 public:
  // ResourceExhausted when there is no room for the staging.
  static absl::StatusOr<std::unique_ptr<PageCopier>> create(const RankMemory& memory);

  // Host memory that create() takes.
  static std::int64_t staging_bytes(const PageShape& page) { return DiskPool::file_bytes(1, page); }

  // Waits until the page is there. DataLoss when the disk does not hold what was written,
  // Unavailable when it cannot be written, or what the device says. `write` numbers a write to
  // disk.
  absl::Status copy(const kv::Location& from, const kv::Location& to, std::uint64_t write);

 private:
  explicit PageCopier(const RankMemory& memory);
  device::DevicePtr<std::byte> address(const kv::Location& location) const;
  absl::Status copy_memory(const kv::Location& from, const kv::Location& to);
  absl::Status write_to_disk(const kv::Location& from, base::SlotId slot, std::uint64_t write);
  absl::Status read_from_disk(base::SlotId slot, const kv::Location& to);

  const RankMemory memory_;
  std::unique_ptr<device::Stream> stream_;
  device::HostBuffer staging_;  // [layers][slice of the disk pool]
};

}  // namespace hisparse::transfer
