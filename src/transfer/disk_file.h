// A file of fixed size that is read and written past the page cache where the file system can.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace hisparse::transfer {

// Owns the descriptor. Any thread. Offsets, sizes and addresses of what is read or written are
// multiples of kFileAlignment (aligned_buffer.h).
class DiskFile final {
 public:
  // Room for `bytes` is taken at once. NotFound or PermissionDenied for the folder,
  // ResourceExhausted when the disk has not enough room; messages name what to change.
  //
  // A scratch file has no name once it is open, so nothing is left behind when the process dies.
  static absl::StatusOr<std::unique_ptr<DiskFile>> scratch(const std::string& folder,
                                                           std::int64_t bytes);
  // A kept file has the name, its content stays, and it is made for its owner's eyes only. Nothing
  // here keeps another process away (PageStore does).
  static absl::StatusOr<std::unique_ptr<DiskFile>> kept(const std::string& folder,
                                                        const std::string& name,
                                                        std::int64_t bytes);
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  bool unbuffered() const { return unbuffered_; }
  int descriptor() const { return file_; }

  // Unavailable, with `what` in front of the reason.
  absl::Status write(std::span<const std::byte> bytes, std::int64_t offset, const char* what) const;
  absl::Status read(std::span<std::byte> bytes, std::int64_t offset, const char* what) const;

 private:
  DiskFile(int file, bool unbuffered) : file_(file), unbuffered_(unbuffered) {}
  // Of `named`, which is closed where another descriptor takes its place.
  static std::unique_ptr<DiskFile> open_unbuffered(int named, const std::string& path);

  const int file_;
  const bool unbuffered_;
};

}  // namespace hisparse::transfer
