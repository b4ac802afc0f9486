// Pages on disk, brought into the device's reach layer by layer while a step runs.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "device/device.h"
#include "kv/cache_group.h"
#include "kv/transfer.h"
#include "model/rank_model.h"
#include "transfer/disk_pool.h"
#include "transfer/slice_reader.h"

namespace hisparse::engine {

// "Page `page` of the sequence in `sequence_slot` is in `slot` of the disk pool."
struct SpilledPage {
  std::int32_t sequence_slot = 0;
  std::int32_t page = 0;
  base::SlotId slot;
};

// Owns two halves of staging and a few threads that read. While the device attends to what lies in
// one half, the next window (of this layer or of the next) is read into the other. The device reads
// the slices where they were read to. The worker thread calls everything; disk, device and block
// table outlive it.
class PageStream final : public model::PageWindows {
 public:
  struct Options {
    device::Device* device = nullptr;
    const transfer::DiskPool* disk = nullptr;
    kv::PageLayout layout;
    device::DevicePtr<std::uint64_t> block_table;  // [sequences, pages_per_sequence]
    std::int64_t pages_per_sequence = 0;
    std::int32_t sequences = 0;
    std::int64_t half_bytes = kDefaultHalfBytes;
    base::DiskIo disk_io = base::DiskIo::kAuto;
  };
  static constexpr std::int64_t kDefaultHalfBytes = std::int64_t{32} << 20;

  // Sizes of the staging: a half takes `half_bytes`, or what the shortest window over all sequences
  // needs, if that is more.
  struct Shape {
    std::int32_t sequences = 0;
    std::int32_t page_tokens = 0;
    std::int64_t slice_bytes = 0;
    std::int64_t half_bytes = kDefaultHalfBytes;

    std::int64_t pages_per_half() const;
    std::int64_t staging_bytes() const;  // host memory that create() takes
  };

  // ResourceExhausted when there is no room for its staging; Unavailable when the disk cannot be
  // read the way that `disk_io` asks for.
  static absl::StatusOr<std::unique_ptr<PageStream>> create(const Options& options);
  ~PageStream() override;

  // A step begins that reads these pages. finish() must end it.
  void begin(std::vector<SpilledPage> pages);
  // Every operator of the step has run. The slots that did not hold what was written there.
  std::vector<base::SlotId> finish();

  std::int32_t count() const override { return static_cast<std::int32_t>(windows_.size()); }
  device::SegmentWindow enter(std::int32_t layer, std::int32_t window,
                              device::Stream& stream) override;
  void leave(device::Stream& stream) override;

  // Since they were last taken.
  struct Totals {
    std::int64_t bytes = 0;      // read
    base::Nanoseconds wait = 0;  // that the step stood still for them
  };
  Totals take_totals() { return std::exchange(totals_, {}); }

 private:
  static constexpr std::size_t kHalves = 2;

  // Pages whose tokens are neighbours, and the slots to read for them (several sequences may share
  // one).
  struct Window {
    device::SegmentWindow segments;
    std::vector<SpilledPage> pages;
    std::vector<std::size_t> reads;  // [page]: index into `slots`
    std::vector<base::SlotId> slots;
  };
  struct Half {
    std::vector<std::uint64_t> addresses;  // [page] of the window in it, for the block table
    device::Event used;                    // behind what reads it
  };
  // What the readers do at the moment. Guarded by mutex_.
  struct Job {
    const Window* window = nullptr;
    std::int32_t layer = 0;
    std::size_t half = 0;
    std::size_t next = 0;  // of window->slots
    std::size_t left = 0;
  };

  explicit PageStream(const Options& options);
  static Shape shape_of(const Options& options);
  void cut_windows(const std::vector<SpilledPage>& pages);
  void start_reading(std::int64_t job);
  void wait_for_readers();
  void run_reader(transfer::SliceReader& reader);
  std::vector<transfer::SliceRead> take_reads(std::size_t most);
  void note_read(const transfer::SliceRead& read, const absl::Status& status);
  void point_table_at(const Window& window, std::int32_t layer, Half& half, device::Stream& stream);
  std::int64_t job_count() const {
    return static_cast<std::int64_t>(windows_.size()) * options_.disk->page().layers;
  }
  std::int64_t slice_offset(std::size_t half, std::size_t read) const;

  const Options options_;
  const std::int64_t capacity_;  // pages in a half
  device::HostBuffer staging_;   // [halves][capacity][slice]
  std::array<Half, kHalves> halves_;
  std::vector<Window> windows_;
  std::int64_t current_ = 0;  // job that the device works on: layer * windows + window
  Totals totals_;

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable read_;
  bool stopping_ = false;          // guarded by mutex_
  Job job_;                        // guarded by mutex_
  std::vector<base::SlotId> bad_;  // guarded by mutex_
  std::vector<std::unique_ptr<transfer::SliceReader>> readers_;
  std::vector<std::thread> threads_;  // one for each reader
};

}  // namespace hisparse::engine
