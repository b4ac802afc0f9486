// The file of a transfer::DiskPool in this process, to be spoiled by tests.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/check.h"

namespace hisparse::test {

// There must be exactly one pool (it is named by nothing: /proc knows its descriptor).
class DiskPoolFile final {
 public:
  DiskPoolFile() {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
      if (target.find("hisparse-kv-") == std::string::npos) continue;
      HS_CHECK(file_ < 0);
      file_ = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    }
    HS_CHECK(file_ >= 0);
  }
  ~DiskPoolFile() { ::close(file_); }
  DiskPoolFile(const DiskPoolFile&) = delete;
  DiskPoolFile& operator=(const DiskPoolFile&) = delete;

  std::int64_t size() const {
    struct stat status = {};
    HS_CHECK(::fstat(file_, &status) == 0);
    return status.st_size;
  }
  void cut(std::int64_t size) const { HS_CHECK(::ftruncate(file_, size) == 0); }
  void flip_bit(std::int64_t offset) const {
    char byte = 0;
    HS_CHECK(::pread(file_, &byte, 1, offset) == 1);
    byte = static_cast<char>(byte ^ 0x10);
    HS_CHECK(::pwrite(file_, &byte, 1, offset) == 1);
  }

 private:
  int file_ = -1;
};

}  // namespace hisparse::test
