// The disk tier of one rank: a preallocated file of page slots.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "transfer/aligned_buffer.h"
#include "transfer/disk_file.h"
#include "transfer/page_shape.h"

namespace hisparse::transfer {

// A page lies in the file as `layers` sealed slices, so that one layer can be read and verified
// alone: the layer's bytes, a seal (checksum over them, slot, layer and number of the write), and
// zeros up to a multiple of 4 KiB.
//
// Owns the file. A scratch file goes with the process; a kept one begins with a head that names the
// store it belongs to (page_store.h). Any thread; nobody else may touch a slot that is being
// written.
class DiskPool final {
 public:
  struct Place {
    std::string folder;
    std::string kept_as;  // name of the file; empty: a scratch file
  };
  // Errors as those of DiskFile.
  static absl::StatusOr<std::unique_ptr<DiskPool>> create(const Place& place, std::int32_t slots,
                                                          const PageShape& page);

  // Bytes of one sealed slice, and of a page in the file.
  std::int64_t slice_bytes() const { return slice_bytes_; }
  std::int64_t file_page_bytes() const { return page_.layers * slice_bytes_; }
  // Bytes in the file for this many pages.
  static std::int64_t file_bytes(std::int32_t slots, const PageShape& page);
  const PageShape& page() const { return page_; }
  std::int32_t slots() const { return static_cast<std::int32_t>(last_write_.size()); }
  const DiskFile& file() const { return *file_; }

  // The store that a kept file belongs to; none if it has no head that is whole.
  std::optional<std::uint64_t> store() const;
  // A kept file belongs to this store from now on, and so do the seals of its slices: those of
  // another store are not taken for its own. Before anything is written or read. Unavailable when
  // it cannot be written.
  absl::Status begin_store(std::uint64_t store);
  // What the slot holds was written under this number, or never (a read is DataLoss then).
  static constexpr std::uint64_t kNeverWritten = 0;
  void adopt(base::SlotId slot, std::uint64_t write);

  // `slices`: aligned (aligned_buffer.h), [layers][slice_bytes], whose first layer_bytes are the
  // layer's; the rest is overwritten. `number`, above zero, tells this write from every other one
  // to the file. Unavailable when the file cannot be written.
  absl::Status write(base::SlotId slot, std::uint64_t number, std::span<std::byte> slices);
  // Fills such a buffer. DataLoss when the file does not hold what was written last, or cannot be
  // read.
  absl::Status read(base::SlotId slot, std::span<std::byte> slices) const;
  // The same for one layer: `slice` is [slice_bytes].
  absl::Status read_layer(base::SlotId slot, std::int32_t layer, std::span<std::byte> slice) const;
  // Where the slice of a layer lies in the file, and whether what was read there is what was
  // written last (DataLoss); for reads that overlap (slice_reader.h).
  std::int64_t offset(base::SlotId slot, std::int32_t layer) const;
  absl::Status verify(base::SlotId slot, std::int32_t layer,
                      std::span<const std::byte> slice) const;

 private:
  static constexpr std::int64_t kHeadBytes = kFileAlignment;

  DiskPool(std::unique_ptr<DiskFile> file, std::int64_t head_bytes, std::int32_t slots,
           const PageShape& page);
  static absl::Status lost(const absl::Status& status);

  const std::unique_ptr<DiskFile> file_;
  const std::int64_t head_bytes_;
  const PageShape page_;
  const std::int64_t slice_bytes_;
  std::uint64_t store_ = 0;                             // of a kept file
  std::vector<std::atomic<std::uint64_t>> last_write_;  // [slot]
};

}  // namespace hisparse::transfer
