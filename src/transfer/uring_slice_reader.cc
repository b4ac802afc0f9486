// The one file that knows io_uring.
#include <liburing.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "transfer/slice_reader.h"

namespace hisparse::transfer {
namespace {

constexpr unsigned kDepth = 16;

std::string reason(int error) {
  return "the kernel gives no io_uring: " +
         std::error_code(error, std::generic_category()).message();
}

class UringSliceReader final : public SliceReader {
 public:
  static absl::StatusOr<std::unique_ptr<SliceReader>> create(const DiskPool& disk) {
    auto reader = std::unique_ptr<UringSliceReader>(new UringSliceReader(disk));
    const int result = ::io_uring_queue_init(kDepth, &reader->ring_, 0);
    if (result < 0) return absl::UnavailableError(reason(-result));
    reader->open_ = true;
    return std::unique_ptr<SliceReader>(std::move(reader));
  }
  ~UringSliceReader() override {
    if (open_) ::io_uring_queue_exit(&ring_);
  }

  std::size_t depth() const override { return kDepth; }

  void read(std::span<const SliceRead> reads, const Done& done) override {
    std::size_t next = 0;
    std::size_t under_way = 0;
    while (next < reads.size() || under_way > 0) {
      for (; next < reads.size() && under_way < kDepth; ++next, ++under_way) submit(reads[next]);
      wait();
      under_way -= take(done);
    }
  }

 private:
  explicit UringSliceReader(const DiskPool& disk) : disk_(disk) {}

  void submit(const SliceRead& read) {
    ::io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    HS_CHECK(entry != nullptr);  // never more than its depth
    ::io_uring_prep_read(entry, disk_.file().descriptor(), read.slice.data(),
                         static_cast<unsigned>(read.slice.size()),
                         static_cast<std::uint64_t>(disk_.offset(read.slot, read.layer)));
    ::io_uring_sqe_set_data(entry, const_cast<SliceRead*>(&read));
  }

  // Until at least one read is done. Errors of reads come with them; this one fails only while the
  // kernel is short of memory.
  void wait() {
    int result = ::io_uring_submit_and_wait(&ring_, 1);
    while (result == -EINTR || result == -EAGAIN) result = ::io_uring_submit_and_wait(&ring_, 1);
    HS_CHECK(result >= 0);
  }

  std::size_t take(const Done& done) {
    ::io_uring_cqe* entries[kDepth];
    const unsigned count = ::io_uring_peek_batch_cqe(&ring_, entries, kDepth);
    for (unsigned i = 0; i < count; ++i) {
      const auto& read = *static_cast<const SliceRead*>(::io_uring_cqe_get_data(entries[i]));
      const int result = entries[i]->res;
      ::io_uring_cqe_seen(&ring_, entries[i]);
      done(read, finish(read, result));
    }
    return count;
  }

  // Whatever is not a whole read is done again the plain way, which knows how to go on and what to
  // say.
  absl::Status finish(const SliceRead& read, int result) const {
    if (result < 0 || static_cast<std::size_t>(result) != read.slice.size()) {
      return disk_.read_layer(read.slot, read.layer, read.slice);
    }
    return disk_.verify(read.slot, read.layer, read.slice);
  }

  const DiskPool& disk_;
  ::io_uring ring_ = {};
  bool open_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SliceReader>> make_uring_slice_reader(const DiskPool& disk) {
  return UringSliceReader::create(disk);
}

}  // namespace hisparse::transfer
