// A file mapped for reading.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hisparse::format {

// Owns one read-only mapping of a whole regular file; the destructor unmaps it. Moving keeps the
// address, so spans into bytes() stay valid. Immutable: any thread may read. The file must not
// shrink while it is mapped (the kernel answers a read behind the new end with SIGBUS).
class MappedFile final {
 public:
  // NotFound, PermissionDenied or Unavailable from the system; InvalidArgument for what is not a
  // regular file. Every error names the path.
  static absl::StatusOr<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const;  // the same bytes as characters

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;  // empty for an empty file, which has no mapping
};

// Tells the kernel that this part of a mapping will not be read soon: its whole pages leave the
// process's resident memory, and come back from the file if they are read after all. Advice only.
void release_pages(std::span<const std::byte> mapped);

}  // namespace hisparse::format
