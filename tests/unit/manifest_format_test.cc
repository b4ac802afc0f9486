// The manifest of kept pages: what is written is read again, and nothing else is believed.
#include "transfer/manifest_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace hisparse::transfer {
namespace {

using base::SlotId;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int32_t kSlots = 8;
const ManifestHeader kHeader = {
    .store = 42, .run = 7, .page_tokens = 4, .identity = "model m, numerics n"};

kv::PersistedPage page(std::int32_t slot, std::uint64_t write, std::int32_t depth = 0) {
  return {.slot = SlotId(slot),
          .write = write,
          .root = {.low = 1, .high = 2},
          .parent = {.low = 3, .high = 4},
          .depth = depth,
          .tokens = {slot, 5, 6, 7}};
}

std::size_t record_bytes() { return encode_forgotten(kHeader, SlotId(0)).size(); }

TEST(Manifest, HoldsTheHeaderAndThePagesThatAreListedInTheEnd) {
  const std::string bytes = encode_header(kHeader) + encode_kept(kHeader, page(0, 1)) +
                            encode_kept(kHeader, page(1, 2, 1)) + encode_kept(kHeader, page(2, 3)) +
                            encode_forgotten(kHeader, SlotId(0)) + encode_kept(kHeader, page(1, 9));
  const auto content = decode_manifest(bytes, kSlots);
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(content->header.store, kHeader.store);
  EXPECT_EQ(content->header.run, kHeader.run);
  EXPECT_EQ(content->header.page_tokens, kHeader.page_tokens);
  EXPECT_EQ(content->header.identity, kHeader.identity);
  EXPECT_THAT(content->pages, ElementsAre(page(2, 3), page(1, 9)));
  EXPECT_EQ(content->bad_records, 0);
  EXPECT_EQ(content->torn_bytes, 0);
}

TEST(Manifest, ATornEndCostsTheLastRecordOnly) {
  const std::string kept = encode_kept(kHeader, page(0, 1));
  const std::string whole = encode_header(kHeader) + kept;
  for (std::size_t cut = 1; cut < kept.size(); ++cut) {
    const auto content = decode_manifest(whole + kept.substr(0, cut), kSlots);
    ASSERT_TRUE(content.ok()) << content.status();
    EXPECT_THAT(content->pages, ElementsAre(page(0, 1)));
    EXPECT_EQ(content->torn_bytes, static_cast<std::int64_t>(cut));
  }
}

TEST(Manifest, AFlippedBitCostsItsRecordOnly) {
  const std::string header = encode_header(kHeader);
  const std::string bytes = header + encode_kept(kHeader, page(0, 1)) +
                            encode_kept(kHeader, page(1, 2)) + encode_kept(kHeader, page(2, 3));
  for (std::size_t at = header.size() + record_bytes(); at < header.size() + 2 * record_bytes();
       ++at) {
    std::string spoiled = bytes;
    spoiled[at] = static_cast<char>(spoiled[at] ^ 1);
    const auto content = decode_manifest(spoiled, kSlots);
    ASSERT_TRUE(content.ok()) << content.status();
    EXPECT_THAT(content->pages, ElementsAre(page(0, 1), page(2, 3))) << at;
    EXPECT_EQ(content->bad_records, 1);
  }
}

TEST(Manifest, AHeaderThatIsNotWholeIsNone) {
  const std::string header = encode_header(kHeader);
  for (std::size_t cut = 0; cut < header.size(); ++cut) {
    EXPECT_EQ(decode_manifest(header.substr(0, cut), kSlots).status().code(),
              absl::StatusCode::kDataLoss);
  }
  for (std::size_t at = 0; at < header.size(); ++at) {
    std::string spoiled = header;
    spoiled[at] = static_cast<char>(spoiled[at] ^ 0x40);
    EXPECT_FALSE(decode_manifest(spoiled, kSlots).ok()) << at;
  }
}

TEST(Manifest, RecordsOfAnotherStoreAreNotBelieved) {
  ManifestHeader other = kHeader;
  other.store = 43;
  const auto content =
      decode_manifest(encode_header(kHeader) + encode_kept(other, page(0, 1)), kSlots);
  ASSERT_TRUE(content.ok());
  EXPECT_THAT(content->pages, IsEmpty());
  EXPECT_EQ(content->bad_records, 1);
}

TEST(Manifest, SlotsThatAreNoLongerThereAreLeftOut) {
  const auto content =
      decode_manifest(encode_header(kHeader) + encode_kept(kHeader, page(kSlots, 1)) +
                          encode_kept(kHeader, page(kSlots - 1, 2)),
                      kSlots);
  ASSERT_TRUE(content.ok());
  EXPECT_THAT(content->pages, ElementsAre(page(kSlots - 1, 2)));
  EXPECT_EQ(content->bad_records, 0);
}

TEST(Manifest, ImpossibleValuesAreNotBelieved) {
  kv::PersistedPage negative = page(0, 1);
  negative.slot = SlotId(-3);
  kv::PersistedPage shallow = page(1, 1);
  shallow.depth = -1;
  const auto content =
      decode_manifest(encode_header(kHeader) + encode_kept(kHeader, negative) +
                          encode_kept(kHeader, shallow) + encode_kept(kHeader, page(2, 0)),
                      kSlots);
  ASSERT_TRUE(content.ok());
  EXPECT_THAT(content->pages, IsEmpty());
  EXPECT_EQ(content->bad_records, 3);
}

TEST(Manifest, AnotherKindOfFileIsNamedAsThat) {
  const auto content = decode_manifest(std::string(1000, 'x'), kSlots);
  EXPECT_THAT(std::string(content.status().message()), HasSubstr("another kind or version"));
}

}  // namespace
}  // namespace hisparse::transfer
