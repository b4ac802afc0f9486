// Many layers of pages read at a time, both ways.
#include "transfer/slice_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/disk_pool_file.h"
#include "transfer/aligned_buffer.h"

namespace hisparse::transfer {
namespace {

using base::SlotId;

constexpr PageShape kPage = {.layers = 3, .layer_bytes = 5000};
constexpr std::int32_t kSlots = 30;

class SliceReaders : public testing::TestWithParam<base::DiskIo> {
 protected:
  void SetUp() override {
    auto pool = DiskPool::create({.folder = testing::TempDir(), .kept_as = {}}, kSlots, kPage);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = std::move(*pool);
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
      AlignedBuffer page(static_cast<std::size_t>(pool_->file_page_bytes()));
      for (std::int32_t layer = 0; layer < kPage.layers; ++layer) {
        std::memset(page.bytes().data() + layer * pool_->slice_bytes(), value(slot, layer),
                    static_cast<std::size_t>(kPage.layer_bytes));
      }
      ASSERT_TRUE(pool_->write(SlotId(slot), 1, page.bytes()).ok());
    }
    auto readers = make_slice_readers(*pool_, GetParam());
    if (!readers.ok() && GetParam() == base::DiskIo::kIoUring) {
      GTEST_SKIP() << readers.status();
    }
    ASSERT_TRUE(readers.ok()) << readers.status();
    readers_ = std::move(*readers);
  }

  static int value(std::int32_t slot, std::int32_t layer) { return 1 + slot * 3 + layer; }

  // Every slice of the file at once; the status of each, by slot and layer.
  std::map<std::pair<std::int32_t, std::int32_t>, absl::Status> read_everything() {
    const auto slice_bytes = static_cast<std::size_t>(pool_->slice_bytes());
    buffer_ = AlignedBuffer(slice_bytes * kSlots * kPage.layers);
    std::vector<SliceRead> reads;
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
      for (std::int32_t layer = 0; layer < kPage.layers; ++layer) {
        reads.push_back(
            {.slot = SlotId(slot),
             .layer = layer,
             .slice = buffer_.bytes().subspan(reads.size() * slice_bytes, slice_bytes)});
      }
    }
    std::map<std::pair<std::int32_t, std::int32_t>, absl::Status> told;
    readers_.front()->read(reads, [&](const SliceRead& read, const absl::Status& status) {
      EXPECT_TRUE(told.emplace(std::pair(read.slot.value(), read.layer), status).second);
      if (!status.ok()) return;
      for (std::size_t at : {std::size_t{0}, static_cast<std::size_t>(kPage.layer_bytes) - 1}) {
        EXPECT_EQ(static_cast<int>(read.slice[at]), value(read.slot.value(), read.layer));
      }
    });
    EXPECT_EQ(told.size(), reads.size());
    return told;
  }

  std::unique_ptr<DiskPool> pool_;
  std::vector<std::unique_ptr<SliceReader>> readers_;
  AlignedBuffer buffer_;
};

TEST_P(SliceReaders, ReadMoreThanTheyKeepUnderWay) {
  ASSERT_FALSE(readers_.empty());
  EXPECT_LT(readers_.front()->depth(), static_cast<std::size_t>(kSlots));
  for (int round = 0; round < 3; ++round) {
    for (const auto& [slice, status] : read_everything()) EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_P(SliceReaders, TellWhichSliceIsBad) {
  const test::DiskPoolFile file;
  file.flip_bit(pool_->offset(SlotId(17), 1) + 2500);
  for (const auto& [slice, status] : read_everything()) {
    const bool bad = slice == std::pair<std::int32_t, std::int32_t>(17, 1);
    EXPECT_EQ(absl::IsDataLoss(status), bad) << status;
  }
}

TEST_P(SliceReaders, AFileThatHasShrunkIsLossNotAHang) {
  const test::DiskPoolFile file;
  file.cut(pool_->offset(SlotId(20), 1) + 100);
  for (const auto& [slice, status] : read_everything()) {
    const bool gone = slice.first > 20 || (slice.first == 20 && slice.second >= 1);
    EXPECT_EQ(absl::IsDataLoss(status), gone) << slice.first << " " << slice.second << status;
  }
}

std::string name_of_way(const testing::TestParamInfo<base::DiskIo>& info) {
  switch (info.param) {
    case base::DiskIo::kAuto:
      return "Auto";
    case base::DiskIo::kIoUring:
      return "IoUring";
    case base::DiskIo::kThreads:
      return "Threads";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(Ways, SliceReaders,
                         testing::Values(base::DiskIo::kAuto, base::DiskIo::kIoUring,
                                         base::DiskIo::kThreads),
                         name_of_way);

}  // namespace
}  // namespace hisparse::transfer
