#include "transfer/disk_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/status.h"

namespace hisparse::transfer {
namespace {

constexpr mode_t kOnlyOwner = 0600;
constexpr std::uint64_t kStatBlock = 512;  // what st_blocks counts

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

// Whether the disk has room for what the file does not hold yet.
bool has_room(int file, std::int64_t bytes) {
  struct statvfs disk = {};
  struct stat held = {};
  if (::fstatvfs(file, &disk) != 0 || ::fstat(file, &held) != 0) return true;
  const std::uint64_t present = static_cast<std::uint64_t>(held.st_blocks) * kStatBlock;
  const auto wanted = static_cast<std::uint64_t>(bytes);
  return wanted <= present || disk.f_bavail >= (wanted - present) / disk.f_frsize;
}

// Takes the room now, not when a page is written. Asks first whether there is any: where the file
// system cannot reserve, the library writes to every block until the disk is full.
absl::Status reserve(int file, std::int64_t bytes, const std::string& folder) {
  int error = has_room(file, bytes) ? 0 : ENOSPC;
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
absl::Status transfer_all(Call call, std::size_t bytes, const char* what) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t count = call(done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::UnavailableError(error_text(what));
    if (count == 0) return absl::UnavailableError(std::string(what) + ": the file has shrunk");
    done += static_cast<std::size_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<DiskFile> DiskFile::open_unbuffered(int named, const std::string& path) {
  // Some file systems (tmpfs, say) know only buffered access.
  const int direct = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);
  if (direct < 0) return std::unique_ptr<DiskFile>(new DiskFile(named, false));
  ::close(named);
  return std::unique_ptr<DiskFile>(new DiskFile(direct, true));
}

absl::StatusOr<std::unique_ptr<DiskFile>> DiskFile::scratch(const std::string& folder,
                                                            std::int64_t bytes) {
  std::string path = folder + "/hisparse-kv-XXXXXX";
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named < 0) return open_error(folder);
  // Before the other descriptor: where the file system cannot reserve, this writes to it.
  if (absl::Status status = reserve(named, bytes, folder); !status.ok()) {
    ::unlink(path.c_str());
    ::close(named);
    return status;
  }
  std::unique_ptr<DiskFile> file = open_unbuffered(named, path);
  ::unlink(path.c_str());
  return file;
}

absl::StatusOr<std::unique_ptr<DiskFile>> DiskFile::kept(const std::string& folder,
                                                         const std::string& name,
                                                         std::int64_t bytes) {
  const std::string path = folder + "/" + name;
  const int named = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kOnlyOwner);
  if (named < 0) return open_error(folder);
  absl::Status status = reserve(named, bytes, folder);
  if (status.ok() && ::ftruncate(named, bytes) != 0) status = open_error(folder);
  if (!status.ok()) {
    ::close(named);
    return status;
  }
  return open_unbuffered(named, path);
}

DiskFile::~DiskFile() { ::close(file_); }

absl::Status DiskFile::write(std::span<const std::byte> bytes, std::int64_t offset,
                             const char* what) const {
  return transfer_all(
      [&](std::size_t done) {
        return ::pwrite(file_, bytes.data() + done, bytes.size() - done,
                        offset + static_cast<std::int64_t>(done));
      },
      bytes.size(), what);
}

absl::Status DiskFile::read(std::span<std::byte> bytes, std::int64_t offset,
                            const char* what) const {
  return transfer_all(
      [&](std::size_t done) {
        return ::pread(file_, bytes.data() + done, bytes.size() - done,
                       offset + static_cast<std::int64_t>(done));
      },
      bytes.size(), what);
}

}  // namespace hisparse::transfer
