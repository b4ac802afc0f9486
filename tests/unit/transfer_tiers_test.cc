// The disk pool and the production mover, on real memory and files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "tests/support/disk_pool_file.h"
#include "transfer/aligned_buffer.h"
#include "transfer/disk_pool.h"
#include "transfer/page_mover.h"

namespace hisparse::transfer {
namespace {

using base::SlotId;
using kv::Location;
using kv::Tier;

constexpr PageShape kPage = {.layers = 3, .layer_bytes = 5000};
constexpr std::int32_t kSlots = 4;

std::unique_ptr<DiskPool> make_pool() {
  auto pool = DiskPool::create({.folder = testing::TempDir(), .kept_as = {}}, kSlots, kPage);
  EXPECT_TRUE(pool.ok()) << pool.status();
  return std::move(*pool);
}

// [layers][slice], the layers' bytes at random.
AlignedBuffer random_page(const DiskPool& pool, std::uint32_t seed) {
  AlignedBuffer page(static_cast<std::size_t>(pool.file_page_bytes()));
  std::mt19937 random(seed);
  for (std::byte& byte : page.bytes()) byte = static_cast<std::byte>(random());
  return page;
}

std::span<const std::byte> layer_of(const DiskPool& pool, const AlignedBuffer& page, int layer) {
  return page.bytes().subspan(static_cast<std::size_t>(layer * pool.slice_bytes()),
                              static_cast<std::size_t>(kPage.layer_bytes));
}

TEST(DiskPool, KeepsPagesAndTheirLayers) {
  const auto pool = make_pool();
  std::vector<AlignedBuffer> pages;
  for (std::int32_t slot = 0; slot < kSlots; ++slot) {
    pages.push_back(random_page(*pool, static_cast<std::uint32_t>(slot)));
    ASSERT_TRUE(pool->write(SlotId(slot), 7, pages.back().bytes()).ok());
  }
  for (std::int32_t slot = kSlots; slot-- > 0;) {
    AlignedBuffer read(static_cast<std::size_t>(pool->file_page_bytes()));
    ASSERT_TRUE(pool->read(SlotId(slot), read.bytes()).ok());
    AlignedBuffer one(static_cast<std::size_t>(pool->slice_bytes()));
    for (int layer = 0; layer < kPage.layers; ++layer) {
      const auto expected = layer_of(*pool, pages[static_cast<std::size_t>(slot)], layer);
      EXPECT_TRUE(std::ranges::equal(layer_of(*pool, read, layer), expected));
      ASSERT_TRUE(pool->read_layer(SlotId(slot), layer, one.bytes()).ok());
      EXPECT_TRUE(std::ranges::equal(one.bytes().first(expected.size()), expected));
    }
  }
}

TEST(DiskPool, ASlotThatWasNeverWrittenIsLost) {
  const auto pool = make_pool();
  AlignedBuffer page(static_cast<std::size_t>(pool->file_page_bytes()));
  EXPECT_EQ(pool->read(SlotId(1), page.bytes()).code(), absl::StatusCode::kDataLoss);
}

TEST(DiskPool, AFlippedBitLosesItsLayerAndNoOther) {
  const auto pool = make_pool();
  for (std::int32_t slot = 0; slot < kSlots; ++slot) {
    ASSERT_TRUE(pool->write(SlotId(slot), 7, random_page(*pool, 7).bytes()).ok());
  }
  const test::DiskPoolFile file;
  const std::int64_t page = 2 * pool->file_page_bytes();
  // In the rows, and in the seal behind them.
  for (const std::int64_t at :
       {pool->slice_bytes() + 4321, pool->slice_bytes() + kPage.layer_bytes + 3}) {
    file.flip_bit(page + at);
    AlignedBuffer slice(static_cast<std::size_t>(pool->slice_bytes()));
    EXPECT_TRUE(pool->read_layer(SlotId(2), 0, slice.bytes()).ok());
    EXPECT_EQ(pool->read_layer(SlotId(2), 1, slice.bytes()).code(), absl::StatusCode::kDataLoss);
    EXPECT_TRUE(pool->read_layer(SlotId(2), 2, slice.bytes()).ok());
    AlignedBuffer whole(static_cast<std::size_t>(pool->file_page_bytes()));
    EXPECT_EQ(pool->read(SlotId(2), whole.bytes()).code(), absl::StatusCode::kDataLoss);
    EXPECT_TRUE(pool->read(SlotId(1), whole.bytes()).ok());
    file.flip_bit(page + at);
  }
}

TEST(DiskPool, AFolderThatIsNotThereIsNamed) {
  const auto pool = DiskPool::create({.folder = "/nowhere/at/all", .kept_as = {}}, 1, kPage);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(pool.status().message()), testing::HasSubstr("/nowhere/at/all"));
}

TEST(DiskPool, RoomThatIsNotThereIsRefusedAtOnce) {
  const PageShape huge = {.layers = 1000, .layer_bytes = std::int64_t{1} << 30};
  const auto pool = DiskPool::create({.folder = testing::TempDir(), .kept_as = {}}, 1 << 20, huge);
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(pool.status().message()), testing::HasSubstr("--kv-disk-space"));
}

// Two ranks with a slab, host memory and a file each.
class PageMoverTest : public testing::Test {
 protected:
  void SetUp() override {
    for (Rank& rank : ranks_) {
      auto device = device::make_cpu_device(pool_, {.addresses = device::AddressMode::kTagged});
      ASSERT_TRUE(device.ok());
      rank.device = std::move(*device);
      const auto bytes = static_cast<std::size_t>(kSlots * kPage.bytes());
      auto slab = rank.device->allocate(bytes, base::MemoryOwner::kKvSlab);
      auto host = rank.device->allocate_host(bytes, base::MemoryOwner::kKvHost);
      ASSERT_TRUE(slab.ok() && host.ok());
      rank.slab = std::move(*slab);
      rank.host = std::move(*host);
      rank.disk = make_pool();
      rank.stream = rank.device->create_stream();
    }
    auto mover = PageMover::create({ranks_[0].memory(), ranks_[1].memory()});
    ASSERT_TRUE(mover.ok()) << mover.status();
    mover_ = std::move(*mover);
    mover_->set_wake([this] {
      std::lock_guard lock(mutex_);
      woken_ = true;
      wake_.notify_all();
    });
  }
  void TearDown() override { mover_.reset(); }

  struct Rank {
    std::unique_ptr<device::Device> device;
    device::Buffer slab;
    device::HostBuffer host;
    std::unique_ptr<DiskPool> disk;
    std::unique_ptr<device::Stream> stream;

    RankMemory memory() const {
      return {.device = device.get(),
              .page = kPage,
              .slab = slab.as<std::byte>(),
              .host = host.on_device(),
              .disk = disk.get()};
    }
    std::vector<std::byte> page(std::int32_t slot) const {
      std::vector<std::byte> bytes(static_cast<std::size_t>(kPage.bytes()));
      device->copy_to_host(slab.as<const std::byte>() + slot * kPage.bytes(), bytes, *stream);
      EXPECT_TRUE(device->synchronize(device->record(*stream)).ok());
      return bytes;
    }
    void set_page(std::int32_t slot, const std::vector<std::byte>& bytes) {
      device->copy_to_device(bytes, slab.as<std::byte>() + slot * kPage.bytes(), *stream);
      EXPECT_TRUE(device->synchronize(device->record(*stream)).ok());
    }
  };

  absl::Status move(const Location& from, const Location& to) {
    kv::TransferPlan plan;
    plan.demotions.push_back({.id = base::TransferId(next_++),
                              .block = base::BlockId(0),
                              .from = from,
                              .to = to,
                              .reason = kv::MoveReason::kSpill});
    mover_->submit(plan);
    for (;;) {
      for (const kv::TransferDone& done : mover_->drain()) {
        EXPECT_EQ(done.id.value(), next_ - 1);
        return done.status;
      }
      std::unique_lock lock(mutex_);
      EXPECT_TRUE(wake_.wait_for(lock, std::chrono::seconds(60), [this] { return woken_; }));
      woken_ = false;
    }
  }

  base::ThreadPool pool_{1};
  Rank ranks_[2];
  std::unique_ptr<PageMover> mover_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool woken_ = false;
  std::int64_t next_ = 0;
};

TEST_F(PageMoverTest, CarriesPagesThroughEveryTierOnEveryRank) {
  std::mt19937 random(3);
  std::vector<std::byte> pages[2];
  for (int rank = 0; rank < 2; ++rank) {
    pages[rank].resize(static_cast<std::size_t>(kPage.bytes()));
    for (std::byte& byte : pages[rank]) byte = static_cast<std::byte>(random());
    ranks_[rank].set_page(1, pages[rank]);
  }
  const Location steps[] = {{Tier::kResident, SlotId(1)}, {Tier::kHost, SlotId(2)},
                            {Tier::kDisk, SlotId(3)},     {Tier::kHost, SlotId(0)},
                            {Tier::kResident, SlotId(2)}, {Tier::kDisk, SlotId(0)},
                            {Tier::kResident, SlotId(3)}};
  for (std::size_t i = 0; i + 1 < std::size(steps); ++i) {
    ASSERT_TRUE(move(steps[i], steps[i + 1]).ok()) << i;
  }
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks_[rank].page(2), pages[rank]);
    EXPECT_EQ(ranks_[rank].page(3), pages[rank]);
  }
}

TEST_F(PageMoverTest, SaysSoWhenADiskDoesNotHoldThePage) {
  EXPECT_EQ(move({Tier::kDisk, SlotId(1)}, {Tier::kResident, SlotId(0)}).code(),
            absl::StatusCode::kDataLoss);
  // And the next one works.
  EXPECT_TRUE(move({Tier::kResident, SlotId(0)}, {Tier::kDisk, SlotId(1)}).ok());
}

}  // namespace
}  // namespace hisparse::transfer
