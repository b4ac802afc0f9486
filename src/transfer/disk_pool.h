// The disk tier of one rank: a preallocated file of page slots.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "transfer/page_shape.h"

namespace hisparse::transfer {

// A page lies in the file as `layers` sealed slices, so that one layer can be read and verified
// alone: the layer's bytes, a seal (checksum over them, slot, layer and number of the write), and
// zeros up to a multiple of 4 KiB.
//
// Owns the file. It has no name in its folder any more once it is open, so nothing is left behind
// when the process dies. Any thread; nobody else may touch a slot that is being written.
class DiskPool final {
 public:
  // Room for `slots` pages is taken at once. NotFound or PermissionDenied for the folder,
  // ResourceExhausted when the disk has not enough room; messages name what to change.
  static absl::StatusOr<std::unique_ptr<DiskPool>> create(const std::string& folder,
                                                          std::int32_t slots,
                                                          const PageShape& page);
  ~DiskPool();
  DiskPool(const DiskPool&) = delete;
  DiskPool& operator=(const DiskPool&) = delete;

  // Bytes of one sealed slice, and of a page in the file.
  std::int64_t slice_bytes() const { return slice_bytes_; }
  std::int64_t file_page_bytes() const { return page_.layers * slice_bytes_; }
  // Bytes in the file for this many pages.
  static std::int64_t file_bytes(std::int32_t slots, const PageShape& page);
  const PageShape& page() const { return page_; }
  bool unbuffered() const { return unbuffered_; }

  // `slices`: aligned (aligned_buffer.h), [layers][slice_bytes], whose first layer_bytes are the
  // layer's; the rest is overwritten. Unavailable when the file cannot be written.
  absl::Status write(base::SlotId slot, std::span<std::byte> slices);
  // Fills such a buffer. DataLoss when the file does not hold what was written last, or cannot be
  // read.
  absl::Status read(base::SlotId slot, std::span<std::byte> slices) const;
  // The same for one layer: `slice` is [slice_bytes].
  absl::Status read_layer(base::SlotId slot, std::int32_t layer, std::span<std::byte> slice) const;

 private:
  DiskPool(int file, bool unbuffered, std::int32_t slots, const PageShape& page);
  static absl::Status lost(const absl::Status& status);
  std::int64_t offset(base::SlotId slot, std::int32_t layer) const;
  absl::Status verify(base::SlotId slot, std::int32_t layer,
                      std::span<const std::byte> slice) const;

  const int file_;
  const bool unbuffered_;
  const PageShape page_;
  const std::int64_t slice_bytes_;
  std::atomic<std::uint64_t> writes_{0};
  std::vector<std::atomic<std::uint64_t>> last_write_;  // [slot]; 0: never
};

}  // namespace hisparse::transfer
