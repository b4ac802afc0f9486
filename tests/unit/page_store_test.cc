// The folder of kept pages, over several "processes".
#include "transfer/page_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "transfer/aligned_buffer.h"

namespace hisparse::transfer {
namespace {

using base::SlotId;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr PageShape kPage = {.layers = 2, .layer_bytes = 3000};
constexpr std::int32_t kSlots = 4;
const PageStore::Identity kIdentity = {.model_digest = "m", .numerics = "n", .page_tokens = 4};

kv::PersistedPage page(std::int32_t slot, std::uint64_t write) {
  return {.slot = SlotId(slot),
          .write = write,
          .root = {.low = 1, .high = 2},
          .parent = {.low = 1, .high = 2},
          .depth = 0,
          .tokens = {slot, 5, 6, 7}};
}

class PageStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/page_store_test";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    previous_ = spdlog::default_logger();
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)));
  }
  void TearDown() override {
    spdlog::set_default_logger(previous_);
    std::filesystem::remove_all(folder_);
  }

  struct Process {
    std::unique_ptr<PageStore> store;
    std::unique_ptr<DiskPool> pool;
    std::vector<kv::PersistedPage> pages;
  };
  Process start(const PageStore::Identity& identity = kIdentity, std::int32_t slots = kSlots) {
    Process process;
    auto store = PageStore::open(folder_);
    EXPECT_TRUE(store.ok()) << store.status();
    process.store = std::move(*store);
    auto pool =
        DiskPool::create({.folder = folder_, .kept_as = PageStore::file_name(0)}, slots, kPage);
    EXPECT_TRUE(pool.ok()) << pool.status();
    process.pool = std::move(*pool);
    auto pages = process.store->load(identity, {process.pool.get()});
    EXPECT_TRUE(pages.ok()) << pages.status();
    process.pages = std::move(*pages);
    return process;
  }
  // As the movers do it.
  static void write(Process& process, std::int32_t slot, std::uint64_t number) {
    process.store->forget(SlotId(slot));
    AlignedBuffer slices(static_cast<std::size_t>(process.pool->file_page_bytes()));
    std::mt19937 random(static_cast<std::uint32_t>(number));
    for (std::byte& byte : slices.bytes()) byte = static_cast<std::byte>(random());
    ASSERT_TRUE(process.pool->write(SlotId(slot), number, slices.bytes()).ok());
    process.store->keep(page(slot, number));
  }
  static absl::Status read(const Process& process, std::int32_t slot) {
    AlignedBuffer slices(static_cast<std::size_t>(process.pool->file_page_bytes()));
    return process.pool->read(SlotId(slot), slices.bytes());
  }

  std::string folder_;
  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> previous_;
};

TEST_F(PageStoreTest, TheNextProcessFindsWhatWasKeptAndNoMore) {
  {
    Process first = start();
    EXPECT_THAT(first.pages, IsEmpty());
    write(first, 0, 1);
    write(first, 2, 2);
    write(first, 3, 3);
    first.store->forget(SlotId(3));  // is being written when the process dies
    EXPECT_EQ(first.store->listed_pages(), 2);
  }
  const Process second = start();
  EXPECT_THAT(second.pages, ElementsAre(page(0, 1), page(2, 2)));
  EXPECT_TRUE(read(second, 0).ok());
  EXPECT_TRUE(read(second, 2).ok());
  EXPECT_EQ(read(second, 3).code(), absl::StatusCode::kDataLoss);
  EXPECT_GT(second.store->first_write(), 3);
}

TEST_F(PageStoreTest, ASlotThatWasWrittenBehindTheManifestsBackIsNotBelieved) {
  {
    Process first = start();
    write(first, 1, 1);
    AlignedBuffer slices(static_cast<std::size_t>(first.pool->file_page_bytes()));
    ASSERT_TRUE(first.pool->write(SlotId(1), 2, slices.bytes()).ok());
  }
  const Process second = start();
  EXPECT_EQ(read(second, 1).code(), absl::StatusCode::kDataLoss);
}

TEST_F(PageStoreTest, ForeignPagesAreIgnoredWithTheReason) {
  {
    Process first = start();
    write(first, 0, 1);
  }
  for (const PageStore::Identity& other :
       {PageStore::Identity{.model_digest = "x", .numerics = "n", .page_tokens = 4},
        PageStore::Identity{.model_digest = "m", .numerics = "x", .page_tokens = 4}}) {
    log_.str("");
    EXPECT_THAT(start(other).pages, IsEmpty());
    EXPECT_THAT(log_.str(), HasSubstr("they belong to model"));
  }
  // The other model's pages have taken their place.
  EXPECT_THAT(start().pages, IsEmpty());
}

// Another store counts its writes anew: the same slot, the same number, other rows.
TEST_F(PageStoreTest, SlicesOfAnotherStoreDoNotPassForItsOwn) {
  const PageStore::Identity other = {.model_digest = "x", .numerics = "n", .page_tokens = 4};
  std::uint64_t number = 0;
  {
    Process first = start();
    number = static_cast<std::uint64_t>(first.store->first_write()) + 1;
    write(first, 0, number);
  }
  {
    // Listed, but its rows never reached the disk.
    const Process second = start(other);
    ASSERT_EQ(static_cast<std::uint64_t>(second.store->first_write()) + 1, number);
    second.store->keep(page(0, number));
  }
  const Process third = start(other);
  EXPECT_THAT(third.pages, ElementsAre(page(0, number)));
  EXPECT_EQ(read(third, 0).code(), absl::StatusCode::kDataLoss);
}

TEST_F(PageStoreTest, AManifestThatContradictsItselfIsIgnored) {
  {
    Process first = start();
    write(first, 0, 1);
  }
  const std::string manifest = folder_ + "/hisparse-kv.manifest";
  std::ifstream file(manifest, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  ManifestHeader header = decode_manifest(bytes, kSlots)->header;
  header.page_tokens = 3;
  kv::PersistedPage short_page = page(0, 1);
  short_page.tokens.pop_back();
  std::ofstream(manifest, std::ios::binary)
      << encode_header(header) << encode_kept(header, short_page);
  EXPECT_THAT(start().pages, IsEmpty());
  EXPECT_THAT(log_.str(), HasSubstr("contradicts itself"));
}

TEST_F(PageStoreTest, FilesOfRanksThatAreNoMoreGo) {
  std::ofstream(folder_ + "/" + PageStore::file_name(1)) << "x";
  std::ofstream(folder_ + "/" + PageStore::file_name(2)) << "x";
  (void)start();
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/" + PageStore::file_name(0)));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/" + PageStore::file_name(1)));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/" + PageStore::file_name(2)));
}

TEST_F(PageStoreTest, AManifestWithoutItsFileOfPagesIsIgnored) {
  {
    Process first = start();
    write(first, 0, 1);
  }
  std::filesystem::remove(folder_ + "/" + PageStore::file_name(0));
  EXPECT_THAT(start().pages, IsEmpty());
  EXPECT_THAT(log_.str(), HasSubstr("does not belong to the manifest"));
}

TEST_F(PageStoreTest, ATornManifestIsReadAsFarAsItGoes) {
  {
    Process first = start();
    write(first, 0, 1);
    write(first, 1, 2);
  }
  const std::string manifest = folder_ + "/hisparse-kv.manifest";
  std::filesystem::resize_file(manifest, std::filesystem::file_size(manifest) - 5);
  EXPECT_THAT(start().pages, ElementsAre(page(0, 1)));
  EXPECT_THAT(log_.str(), HasSubstr("torn"));
  // What was torn is gone from the file, so that nothing is written behind it.
  log_.str("");
  EXPECT_THAT(start().pages, SizeIs(1));
  EXPECT_THAT(log_.str(), testing::Not(HasSubstr("torn")));
}

TEST_F(PageStoreTest, ASmallerFileKeepsWhatItStillHolds) {
  {
    Process first = start();
    write(first, 0, 1);
    write(first, 3, 2);
  }
  const Process second = start(kIdentity, 2);
  EXPECT_THAT(second.pages, ElementsAre(page(0, 1)));
  EXPECT_TRUE(read(second, 0).ok());
  EXPECT_THAT(log_.str(), HasSubstr("1 more do not fit"));
}

TEST_F(PageStoreTest, TheJournalIsWrittenAnewBeforeItGrowsWithoutEnd) {
  Process first = start();
  std::uint64_t number = 0;
  for (int round = 0; round < 2000; ++round) {
    first.store->forget(SlotId(round % kSlots));
    first.store->keep(page(round % kSlots, ++number));
  }
  EXPECT_LT(std::filesystem::file_size(folder_ + "/hisparse-kv.manifest"), 200'000u);
  first = {};
  EXPECT_THAT(start().pages, ElementsAre(page(0, number - 3), page(1, number - 2),
                                         page(2, number - 1), page(3, number)));
}

TEST_F(PageStoreTest, OneProcessAtATime) {
  const Process first = start();
  const auto second = PageStore::open(folder_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another running process"));
}

TEST_F(PageStoreTest, AFolderThatIsNotThereIsNamed) {
  const auto store = PageStore::open("/nowhere/at/all");
  EXPECT_EQ(store.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("/nowhere/at/all"));
}

TEST_F(PageStoreTest, TheFilesAreTheOwnersAlone) {
  {
    Process first = start();
    write(first, 0, 1);
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const auto others = std::filesystem::perms::group_all | std::filesystem::perms::others_all;
    EXPECT_EQ(entry.status().permissions() & others, std::filesystem::perms::none) << entry;
  }
}

}  // namespace
}  // namespace hisparse::transfer
