// Reads of single layers of pages, several at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/disk_io.h"
#include "base/ids.h"
#include "transfer/disk_pool.h"

namespace hisparse::transfer {

struct SliceRead {
  base::SlotId slot;
  std::int32_t layer = 0;
  std::span<std::byte> slice;  // aligned, [slice_bytes]
};

// Belongs to one thread.
class SliceReader {
 public:
  // OK, or DataLoss as from DiskPool::read_layer().
  using Done = std::function<void(const SliceRead&, const absl::Status&)>;

  virtual ~SliceReader() = default;

  // Reads that it keeps under way at a time.
  virtual std::size_t depth() const = 0;
  // Reads and verifies all of them, and tells of each when it is done, on the calling thread.
  virtual void read(std::span<const SliceRead> reads, const Done& done) = 0;
};

// One read after another.
std::unique_ptr<SliceReader> make_plain_slice_reader(const DiskPool& disk);
// Through a ring of the kernel. Unavailable where there is none for us.
absl::StatusOr<std::unique_ptr<SliceReader>> make_uring_slice_reader(const DiskPool& disk);

// The pool outlives the readers. At least one; how many read best at a time depends on their kind.
// Unavailable only if io_uring is what must be used.
absl::StatusOr<std::vector<std::unique_ptr<SliceReader>>> make_slice_readers(const DiskPool& disk,
                                                                             base::DiskIo io);

}  // namespace hisparse::transfer
