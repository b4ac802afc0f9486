// The production mover and the store: a slot is listed only while it holds what the list says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "transfer/aligned_buffer.h"
#include "transfer/page_mover.h"
#include "transfer/page_store.h"

namespace hisparse::transfer {
namespace {

using base::SlotId;
using kv::Tier;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr PageShape kPage = {.layers = 2, .layer_bytes = 3000};
constexpr std::int32_t kSlots = 2;
const PageStore::Identity kIdentity = {.model_digest = "m", .numerics = "n", .page_tokens = 2};

class PageKeeping : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    start();
  }
  void TearDown() override {
    stop();
    std::filesystem::remove_all(folder_);
  }

  void start() {
    auto store = PageStore::open(folder_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = std::move(*store);
    std::vector<RankMemory> memories;
    std::vector<DiskPool*> disks;
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      ranks_[rank] = std::make_unique<Rank>();
      Rank& part = *ranks_[rank];
      auto device = device::make_cpu_device(pool_, {});
      ASSERT_TRUE(device.ok());
      part.device = std::move(*device);
      auto slab = part.device->allocate(static_cast<std::size_t>(kSlots * kPage.bytes()),
                                        base::MemoryOwner::kKvSlab);
      auto disk = DiskPool::create({.folder = folder_, .kept_as = PageStore::file_name(rank)},
                                   kSlots, kPage);
      ASSERT_TRUE(slab.ok() && disk.ok()) << disk.status();
      part.slab = std::move(*slab);
      part.disk = std::move(*disk);
      memories.push_back({.device = part.device.get(),
                          .page = kPage,
                          .slab = part.slab.as<std::byte>(),
                          .host = {},
                          .disk = part.disk.get()});
      disks.push_back(part.disk.get());
    }
    auto found = store_->load(kIdentity, disks);
    ASSERT_TRUE(found.ok()) << found.status();
    found_ = std::move(*found);
    auto mover = PageMover::create(memories, store_.get());
    ASSERT_TRUE(mover.ok()) << mover.status();
    mover_ = std::move(*mover);
    next_ = store_->first_write();
  }
  void stop() {
    mover_.reset();
    for (std::unique_ptr<Rank>& rank : ranks_) rank.reset();
    store_.reset();
  }
  void restart() {
    stop();
    start();
  }

  // To `slot` of the disk; kept if it has a first token.
  absl::Status spill(std::int32_t slot, base::TokenId first_token) {
    kv::TransferOp op = {.id = base::TransferId(next_++),
                         .block = base::BlockId(0),
                         .from = {Tier::kResident, SlotId(0)},
                         .to = {Tier::kDisk, SlotId(slot)}};
    if (first_token != kNotKept) {
      op.persisted =
          std::make_shared<kv::PersistedPage>(kv::PersistedPage{.slot = SlotId(slot),
                                                                .write = kv::write_number(op.id),
                                                                .root = {.low = 1, .high = 2},
                                                                .parent = {.low = 1, .high = 2},
                                                                .depth = 0,
                                                                .tokens = {first_token, 5}});
    }
    mover_->submit({.restores = {}, .demotions = {op}, .forgotten = {}});
    for (;;) {
      const std::vector<kv::TransferDone> done = mover_->drain();
      if (!done.empty()) return done.front().status;
      std::this_thread::yield();
    }
  }
  std::vector<base::TokenId> first_tokens() const {
    std::vector<base::TokenId> tokens;
    for (const kv::PersistedPage& page : found_) tokens.push_back(page.tokens[0]);
    return tokens;
  }

  static constexpr base::TokenId kNotKept = -1;
  struct Rank {  // destroyed from the last member to the first
    std::unique_ptr<device::Device> device;
    device::Buffer slab;
    std::unique_ptr<DiskPool> disk;
  };
  const std::string folder_ = testing::TempDir() + "/page_keeping_test";
  base::ThreadPool pool_{1};
  std::unique_ptr<Rank> ranks_[2];
  std::unique_ptr<PageStore> store_;
  std::unique_ptr<PageMover> mover_;
  std::vector<kv::PersistedPage> found_;
  std::int64_t next_ = 0;
};

TEST_F(PageKeeping, WhatEveryRankHasWrittenIsListed) {
  EXPECT_THAT(found_, IsEmpty());
  ASSERT_TRUE(spill(0, 10).ok());
  ASSERT_TRUE(spill(1, 20).ok());
  restart();
  EXPECT_THAT(first_tokens(), ElementsAre(10, 20));
}

TEST_F(PageKeeping, ASlotThatIsWrittenAgainIsNoLongerWhatItWas) {
  ASSERT_TRUE(spill(0, 10).ok());
  ASSERT_TRUE(spill(1, 20).ok());
  ASSERT_TRUE(spill(0, kNotKept).ok());
  ASSERT_TRUE(spill(1, 30).ok());
  restart();
  EXPECT_THAT(first_tokens(), ElementsAre(30));
}

// The limit lets the manifest grow, and no page be written.
TEST_F(PageKeeping, WhatCouldNotBeWrittenIsNotListed) {
  ASSERT_TRUE(spill(0, 10).ok());
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {.rlim_cur = kFileAlignment, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_FALSE(spill(1, 20).ok());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  restart();
  EXPECT_THAT(first_tokens(), ElementsAre(10));
}

TEST_F(PageKeeping, ALostPageIsNotListed) {
  ASSERT_TRUE(spill(0, 10).ok());
  ASSERT_TRUE(spill(1, 20).ok());
  mover_->submit({.restores = {}, .demotions = {}, .forgotten = {SlotId(0)}});
  restart();
  EXPECT_THAT(first_tokens(), ElementsAre(20));
}

}  // namespace
}  // namespace hisparse::transfer
