#include "transfer/disk_pool.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
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
                          std::uint64_t write) {
  const std::uint64_t place =
      static_cast<std::uint64_t>(slot.value()) << 32 | static_cast<std::uint32_t>(layer);
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), place ^ (write * kGoldenRatio));
}

std::string error_text(const std::string& what) {
  return what + ": " + std::error_code(errno, std::generic_category()).message();
}

absl::Status open_error(const std::string& folder) {
  const std::string text =
      error_text("--kv-disk-path " + folder + " cannot hold the file of KV pages");
  if (errno == ENOENT || errno == ENOTDIR) return absl::NotFoundError(text);
  if (errno == EACCES || errno == EROFS) return absl::PermissionDeniedError(text);
  return absl::UnavailableError(text);
}

// Takes the room now, not when a page is written. Asks first whether there is any: where the file
// system cannot reserve, the library writes to every block until the disk is full.
absl::Status reserve(int file, std::int64_t bytes, const std::string& folder) {
  struct statvfs disk = {};
  int error = 0;
  if (::fstatvfs(file, &disk) == 0 &&
      disk.f_bavail < static_cast<std::uint64_t>(bytes) / disk.f_frsize) {
    error = ENOSPC;
  }
  while (error == 0) {
    error = ::posix_fallocate(file, 0, bytes);
    if (error == 0) return absl::OkStatus();
    if (error == EINTR) error = 0;
  }
  errno = error;
  if (error != ENOSPC && error != EDQUOT && error != EFBIG) return open_error(folder);
  const std::string text =
      error_text("the disk of --kv-disk-path " + folder + " has no room for " +
                 std::to_string(bytes) + " bytes of KV pages: lower --kv-disk-space");
  return absl::ResourceExhaustedError(text);
}

// The whole span at `offset`, however many calls it takes.
template <typename Call>
absl::Status transfer_all(Call call, std::int64_t bytes, const char* what) {
  for (std::int64_t done = 0; done < bytes;) {
    const ssize_t count = call(done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::UnavailableError(error_text(what));
    if (count == 0) return absl::UnavailableError(std::string(what) + ": the file has shrunk");
    done += count;
  }
  return absl::OkStatus();
}

}  // namespace

std::int64_t DiskPool::file_bytes(std::int32_t slots, const PageShape& page) {
  return std::int64_t{slots} * page.layers * sealed_bytes(page);
}

absl::StatusOr<std::unique_ptr<DiskPool>> DiskPool::create(const std::string& folder,
                                                           std::int32_t slots,
                                                           const PageShape& page) {
  HS_CHECK(slots > 0 && page.layers > 0 && page.layer_bytes > 0);
  std::string name = folder + "/hisparse-kv-XXXXXX";
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named < 0) return open_error(folder);
  // Before the other descriptor: where the file system cannot reserve, this writes to it.
  if (absl::Status status = reserve(named, file_bytes(slots, page), folder); !status.ok()) {
    ::unlink(name.c_str());
    ::close(named);
    return status;
  }
  // Some file systems (tmpfs, say) know only buffered access.
  const int direct = ::open(name.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);
  ::unlink(name.c_str());
  if (direct >= 0) ::close(named);
  return std::unique_ptr<DiskPool>(
      new DiskPool(direct >= 0 ? direct : named, direct >= 0, slots, page));
}

DiskPool::DiskPool(int file, bool unbuffered, std::int32_t slots, const PageShape& page)
    : file_(file),
      unbuffered_(unbuffered),
      page_(page),
      slice_bytes_(sealed_bytes(page)),
      last_write_(static_cast<std::size_t>(slots)) {}

DiskPool::~DiskPool() { ::close(file_); }

std::int64_t DiskPool::offset(base::SlotId slot, std::int32_t layer) const {
  HS_CHECK(slot.value() >= 0 && static_cast<std::size_t>(slot.value()) < last_write_.size());
  HS_CHECK(layer >= 0 && layer < page_.layers);
  return (std::int64_t{slot.value()} * page_.layers + layer) * slice_bytes_;
}

absl::Status DiskPool::write(base::SlotId slot, std::span<std::byte> slices) {
  HS_CHECK(static_cast<std::int64_t>(slices.size()) == file_page_bytes());
  const std::uint64_t write = ++writes_;
  const auto layer_bytes = static_cast<std::size_t>(page_.layer_bytes);
  for (std::int32_t layer = 0; layer < page_.layers; ++layer) {
    const auto slice = slices.subspan(static_cast<std::size_t>(layer * slice_bytes_),
                                      static_cast<std::size_t>(slice_bytes_));
    const Seal seal = {.checksum = checksum_of(slice.first(layer_bytes), slot, layer, write),
                       .write = write};
    const auto behind = slice.subspan(layer_bytes);
    std::ranges::fill(behind, std::byte{});
    std::memcpy(behind.data(), &seal, sizeof(seal));
  }
  last_write_[static_cast<std::size_t>(slot.value())].store(write, std::memory_order_relaxed);
  const std::int64_t at = offset(slot, 0);
  return transfer_all(
      [&](std::int64_t done) {
        return ::pwrite(file_, slices.data() + done, slices.size() - static_cast<std::size_t>(done),
                        at + done);
      },
      file_page_bytes(), "a KV page could not be written to disk");
}

absl::Status DiskPool::verify(base::SlotId slot, std::int32_t layer,
                              std::span<const std::byte> slice) const {
  const auto layer_bytes = static_cast<std::size_t>(page_.layer_bytes);
  Seal seal;
  std::memcpy(&seal, slice.data() + layer_bytes, sizeof(seal));
  const std::uint64_t write =
      last_write_[static_cast<std::size_t>(slot.value())].load(std::memory_order_relaxed);
  if (seal.write == write && write != 0 &&
      seal.checksum == checksum_of(slice.first(layer_bytes), slot, layer, write)) {
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
  const std::int64_t at = offset(slot, 0);
  const absl::Status status = transfer_all(
      [&](std::int64_t done) {
        return ::pread(file_, slices.data() + done, slices.size() - static_cast<std::size_t>(done),
                       at + done);
      },
      file_page_bytes(), "a KV page could not be read from disk");
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
  const std::int64_t at = offset(slot, layer);
  const absl::Status status = transfer_all(
      [&](std::int64_t done) {
        return ::pread(file_, slice.data() + done, slice.size() - static_cast<std::size_t>(done),
                       at + done);
      },
      slice_bytes_, "a layer of a KV page could not be read from disk");
  if (!status.ok()) return lost(status);
  return verify(slot, layer, slice);
}

}  // namespace hisparse::transfer
