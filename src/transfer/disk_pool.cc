#include "transfer/disk_pool.h"

#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "transfer/aligned_buffer.h"

namespace hisparse::transfer {
namespace {

// Spreads the number of a write over all bits.
constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15u;

// Behind the bytes of a layer.
struct Seal {
  std::uint64_t checksum = 0;
  std::uint64_t write = 0;
};

std::int64_t sealed_bytes(const PageShape& page) {
  return static_cast<std::int64_t>(
      AlignedBuffer::round_up(static_cast<std::size_t>(page.layer_bytes) + sizeof(Seal)));
}

// The place is part of it, so that a slice that was written elsewhere does not pass for this one.
std::uint64_t checksum_of(std::span<const std::byte> bytes, base::SlotId slot, std::int32_t layer,
                          std::uint64_t seed) {
  const std::uint64_t place =
      static_cast<std::uint64_t>(slot.value()) << 32 | static_cast<std::uint32_t>(layer);
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), place ^ (seed * kGoldenRatio));
}

// In front of the pages of a kept file.
struct Head {
  std::uint64_t magic = 0;
  std::uint64_t store = 0;
  std::uint64_t checksum = 0;  // over the two
};
// "HSPAGES" and the version of the layout of the file.
constexpr std::uint64_t kHeadMagic = 0x4853504147455301u;

std::uint64_t checksum_of(const Head& head) { return XXH3_64bits(&head, offsetof(Head, checksum)); }

}  // namespace

std::int64_t DiskPool::file_bytes(std::int32_t slots, const PageShape& page) {
  return std::int64_t{slots} * page.layers * sealed_bytes(page);
}

absl::StatusOr<std::unique_ptr<DiskPool>> DiskPool::create(const Place& place, std::int32_t slots,
                                                           const PageShape& page) {
  HS_CHECK(slots > 0 && page.layers > 0 && page.layer_bytes > 0);
  const std::int64_t bytes = file_bytes(slots, page);
  std::unique_ptr<DiskFile> file;
  if (place.kept_as.empty()) {
    HS_ASSIGN_OR_RETURN(file, DiskFile::scratch(place.folder, bytes));
  } else {
    HS_ASSIGN_OR_RETURN(file, DiskFile::kept(place.folder, place.kept_as, kHeadBytes + bytes));
  }
  const std::int64_t head = place.kept_as.empty() ? 0 : kHeadBytes;
  return std::unique_ptr<DiskPool>(new DiskPool(std::move(file), head, slots, page));
}

DiskPool::DiskPool(std::unique_ptr<DiskFile> file, std::int64_t head_bytes, std::int32_t slots,
                   const PageShape& page)
    : file_(std::move(file)),
      head_bytes_(head_bytes),
      page_(page),
      slice_bytes_(sealed_bytes(page)),
      last_write_(static_cast<std::size_t>(slots)) {}

std::optional<std::uint64_t> DiskPool::store() const {
  if (head_bytes_ == 0) return std::nullopt;
  AlignedBuffer block(kHeadBytes);
  if (!file_->read(block.bytes(), 0, "the head of the KV pages could not be read").ok()) {
    return std::nullopt;
  }
  Head head;
  std::memcpy(&head, block.bytes().data(), sizeof(head));
  if (head.magic != kHeadMagic || head.checksum != checksum_of(head)) return std::nullopt;
  return head.store;
}

absl::Status DiskPool::begin_store(std::uint64_t store) {
  HS_CHECK(head_bytes_ > 0);
  Head head = {.magic = kHeadMagic, .store = store, .checksum = 0};
  head.checksum = checksum_of(head);
  AlignedBuffer block(kHeadBytes);
  std::memcpy(block.bytes().data(), &head, sizeof(head));
  store_ = store;
  return file_->write(block.bytes(), 0, "the head of the KV pages could not be written");
}

void DiskPool::adopt(base::SlotId slot, std::uint64_t write) {
  HS_CHECK(slot.value() >= 0 && static_cast<std::size_t>(slot.value()) < last_write_.size());
  last_write_[static_cast<std::size_t>(slot.value())].store(write, std::memory_order_relaxed);
}

std::int64_t DiskPool::offset(base::SlotId slot, std::int32_t layer) const {
  HS_CHECK(slot.value() >= 0 && static_cast<std::size_t>(slot.value()) < last_write_.size());
  HS_CHECK(layer >= 0 && layer < page_.layers);
  return head_bytes_ + (std::int64_t{slot.value()} * page_.layers + layer) * slice_bytes_;
}

absl::Status DiskPool::write(base::SlotId slot, std::uint64_t number, std::span<std::byte> slices) {
  HS_CHECK(static_cast<std::int64_t>(slices.size()) == file_page_bytes() &&
           number != kNeverWritten);
  const auto layer_bytes = static_cast<std::size_t>(page_.layer_bytes);
  for (std::int32_t layer = 0; layer < page_.layers; ++layer) {
    const auto slice = slices.subspan(static_cast<std::size_t>(layer * slice_bytes_),
                                      static_cast<std::size_t>(slice_bytes_));
    const Seal seal = {
        .checksum = checksum_of(slice.first(layer_bytes), slot, layer, number ^ store_),
        .write = number};
    const auto behind = slice.subspan(layer_bytes);
    std::ranges::fill(behind, std::byte{});
    std::memcpy(behind.data(), &seal, sizeof(seal));
  }
  const std::int64_t at = offset(slot, 0);
  last_write_[static_cast<std::size_t>(slot.value())].store(number, std::memory_order_relaxed);
  return file_->write(slices, at, "a KV page could not be written to disk");
}

absl::Status DiskPool::verify(base::SlotId slot, std::int32_t layer,
                              std::span<const std::byte> slice) const {
  const auto layer_bytes = static_cast<std::size_t>(page_.layer_bytes);
  Seal seal;
  std::memcpy(&seal, slice.data() + layer_bytes, sizeof(seal));
  const std::uint64_t write =
      last_write_[static_cast<std::size_t>(slot.value())].load(std::memory_order_relaxed);
  if (seal.write == write && write != kNeverWritten &&
      seal.checksum == checksum_of(slice.first(layer_bytes), slot, layer, write ^ store_)) {
    return absl::OkStatus();
  }
  return absl::DataLossError("slot " + std::to_string(slot.value()) + ", layer " +
                             std::to_string(layer) +
                             " of the KV pages on disk does not hold what was written");
}

// Whatever the reason: what was written cannot be had again.
absl::Status DiskPool::lost(const absl::Status& status) {
  return absl::DataLossError(std::string(status.message()));
}

absl::Status DiskPool::read(base::SlotId slot, std::span<std::byte> slices) const {
  HS_CHECK(static_cast<std::int64_t>(slices.size()) == file_page_bytes());
  const absl::Status status =
      file_->read(slices, offset(slot, 0), "a KV page could not be read from disk");
  if (!status.ok()) return lost(status);
  for (std::int32_t layer = 0; layer < page_.layers; ++layer) {
    HS_RETURN_IF_ERROR(verify(slot, layer,
                              slices.subspan(static_cast<std::size_t>(layer * slice_bytes_),
                                             static_cast<std::size_t>(slice_bytes_))));
  }
  return absl::OkStatus();
}

absl::Status DiskPool::read_layer(base::SlotId slot, std::int32_t layer,
                                  std::span<std::byte> slice) const {
  HS_CHECK(static_cast<std::int64_t>(slice.size()) == slice_bytes_);
  const absl::Status status =
      file_->read(slice, offset(slot, layer), "a layer of a KV page could not be read from disk");
  if (!status.ok()) return lost(status);
  return verify(slot, layer, slice);
}

}  // namespace hisparse::transfer
