#include "transfer/slice_reader.h"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

namespace hisparse::transfer {
namespace {

// What a fast disk wants under way at a time, and how many threads can verify what it reads.
constexpr int kPlainReaders = 4;
constexpr int kUringReaders = 2;

class PlainSliceReader final : public SliceReader {
 public:
  explicit PlainSliceReader(const DiskPool& disk) : disk_(disk) {}

  std::size_t depth() const override { return 1; }
  void read(std::span<const SliceRead> reads, const Done& done) override {
    for (const SliceRead& read : reads) {
      done(read, disk_.read_layer(read.slot, read.layer, read.slice));
    }
  }

 private:
  const DiskPool& disk_;
};

}  // namespace

std::unique_ptr<SliceReader> make_plain_slice_reader(const DiskPool& disk) {
  return std::make_unique<PlainSliceReader>(disk);
}

absl::StatusOr<std::vector<std::unique_ptr<SliceReader>>> make_slice_readers(const DiskPool& disk,
                                                                             base::DiskIo io) {
  std::vector<std::unique_ptr<SliceReader>> readers;
  while (io != base::DiskIo::kThreads && readers.size() < kUringReaders) {
    absl::StatusOr<std::unique_ptr<SliceReader>> reader = make_uring_slice_reader(disk);
    if (reader.ok()) {
      readers.push_back(std::move(*reader));
      continue;
    }
    if (io == base::DiskIo::kIoUring) {
      return absl::UnavailableError("--kv-disk-io io_uring: " +
                                    std::string(reader.status().message()));
    }
    spdlog::info("KV pages on disk are read by threads: {}",
                 std::string(reader.status().message()));
    readers.clear();
    break;
  }
  while (readers.size() < kPlainReaders && (readers.empty() || readers.front()->depth() == 1)) {
    readers.push_back(make_plain_slice_reader(disk));
  }
  return readers;
}

}  // namespace hisparse::transfer
