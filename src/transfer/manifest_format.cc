#include "transfer/manifest_format.h"

#include <xxhash.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"

namespace hisparse::transfer {
namespace {

// "HSKVMAN" and the version of the format.
constexpr std::uint64_t kMagic = 0x48534B564D414E01u;
constexpr std::uint32_t kMaxIdentityBytes = 4096;
constexpr std::int32_t kMaxPageTokens = 1 << 16;
constexpr std::uint32_t kKept = 1;
constexpr std::uint32_t kForgotten = 2;

// Integers are as x86-64 keeps them. Neither struct has padding.
struct HeaderFields {
  std::uint64_t magic = 0;
  std::uint64_t store = 0;
  std::uint64_t run = 0;
  std::int32_t page_tokens = 0;
  std::uint32_t identity_bytes = 0;
};
struct RecordFields {
  std::uint64_t write = 0;
  kv::BlockKey root;
  kv::BlockKey parent;
  std::uint32_t kind = 0;
  std::int32_t slot = 0;
  std::int32_t depth = 0;
  std::int32_t unused = 0;
};
static_assert(sizeof(HeaderFields) == 32 && sizeof(RecordFields) == 56);
constexpr std::size_t kChecksumBytes = sizeof(std::uint64_t);

template <typename T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// At most what is there.
template <typename T>
T take(std::string_view bytes, std::size_t at) {
  T value;
  HS_CHECK(at + sizeof(value) <= bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

std::string sealed(std::string bytes, std::uint64_t store) {
  append(bytes, XXH3_64bits_withSeed(bytes.data(), bytes.size(), store));
  return bytes;
}

bool seal_holds(std::string_view bytes, std::uint64_t store) {
  const std::size_t size = bytes.size() - kChecksumBytes;
  return take<std::uint64_t>(bytes, size) == XXH3_64bits_withSeed(bytes.data(), size, store);
}

std::size_t tokens_bytes(std::int32_t page_tokens) {
  return static_cast<std::size_t>(page_tokens) * sizeof(base::TokenId);
}

std::string encode(const ManifestHeader& header, const RecordFields& fields,
                   const std::vector<base::TokenId>& tokens) {
  std::string bytes;
  append(bytes, fields);
  bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(base::TokenId));
  bytes.resize(sizeof(fields) + tokens_bytes(header.page_tokens));
  return sealed(std::move(bytes), header.store);
}

absl::Status no_manifest(const char* reason) { return absl::DataLossError(reason); }

// Its size in the file is what the second value says.
absl::StatusOr<std::pair<ManifestHeader, std::size_t>> decode_header(std::string_view bytes) {
  if (bytes.size() < sizeof(HeaderFields)) return no_manifest("the manifest has no whole header");
  const auto fields = take<HeaderFields>(bytes, 0);
  if (fields.magic != kMagic) {
    return no_manifest("the manifest is of another kind or version");
  }
  if (fields.identity_bytes > kMaxIdentityBytes || fields.page_tokens < 1 ||
      fields.page_tokens > kMaxPageTokens) {
    return no_manifest("the header of the manifest has impossible sizes");
  }
  const std::size_t size = sizeof(fields) + fields.identity_bytes + kChecksumBytes;
  if (bytes.size() < size) return no_manifest("the manifest has no whole header");
  if (!seal_holds(bytes.substr(0, size), fields.store)) {
    return no_manifest("the header of the manifest does not hold what was written");
  }
  ManifestHeader header = {
      .store = fields.store,
      .run = fields.run,
      .page_tokens = fields.page_tokens,
      .identity = std::string(bytes.substr(sizeof(fields), fields.identity_bytes))};
  return std::pair(std::move(header), size);
}

// Slots and what they hold, with the order in which they came to hold it.
class Listing final {
 public:
  Listing(const ManifestHeader& header, std::int32_t slots) : header_(header), slots_(slots) {}

  // False: no such record can have been written.
  bool add(std::string_view record) {
    if (!seal_holds(record, header_.store)) return false;
    const auto fields = take<RecordFields>(record, 0);
    if (fields.slot < 0 || fields.depth < 0) return false;
    if (fields.kind != kKept && fields.kind != kForgotten) return false;
    if (fields.kind == kKept && fields.write == 0) return false;
    if (const auto held = order_of_.find(fields.slot); held != order_of_.end()) {
      pages_.erase(held->second);
      order_of_.erase(held);
    }
    missing_.erase(fields.slot);
    if (fields.kind == kForgotten) return true;
    // The file of pages may have been made smaller.
    if (fields.slot >= slots_) {
      missing_.insert(fields.slot);
      return true;
    }
    kv::PersistedPage page = {.slot = base::SlotId(fields.slot),
                              .write = fields.write,
                              .root = fields.root,
                              .parent = fields.parent,
                              .depth = fields.depth,
                              .tokens = {}};
    page.tokens.resize(static_cast<std::size_t>(header_.page_tokens));
    std::memcpy(page.tokens.data(), record.data() + sizeof(fields),
                tokens_bytes(header_.page_tokens));
    order_of_[fields.slot] = next_;
    pages_.emplace(next_++, std::move(page));
    return true;
  }

  std::int64_t missing() const { return static_cast<std::int64_t>(missing_.size()); }
  std::vector<kv::PersistedPage> take_pages() {
    std::vector<kv::PersistedPage> pages;
    pages.reserve(pages_.size());
    for (auto& [order, page] : pages_) pages.push_back(std::move(page));
    return pages;
  }

 private:
  const ManifestHeader& header_;
  const std::int32_t slots_;
  std::map<std::int64_t, kv::PersistedPage> pages_;  // by order
  std::map<std::int32_t, std::int64_t> order_of_;    // by slot
  std::set<std::int32_t> missing_;
  std::int64_t next_ = 0;
};

}  // namespace

std::string encode_header(const ManifestHeader& header) {
  HS_CHECK(header.identity.size() <= kMaxIdentityBytes);
  std::string bytes;
  append(bytes, HeaderFields{.magic = kMagic,
                             .store = header.store,
                             .run = header.run,
                             .page_tokens = header.page_tokens,
                             .identity_bytes = static_cast<std::uint32_t>(header.identity.size())});
  bytes += header.identity;
  return sealed(std::move(bytes), header.store);
}

std::string encode_kept(const ManifestHeader& header, const kv::PersistedPage& page) {
  HS_CHECK(page.tokens.size() == static_cast<std::size_t>(header.page_tokens));
  return encode(header,
                {.write = page.write,
                 .root = page.root,
                 .parent = page.parent,
                 .kind = kKept,
                 .slot = page.slot.value(),
                 .depth = page.depth},
                page.tokens);
}

std::string encode_forgotten(const ManifestHeader& header, base::SlotId slot) {
  RecordFields fields;
  fields.kind = kForgotten;
  fields.slot = slot.value();
  return encode(header, fields, {});
}

absl::StatusOr<ManifestContent> decode_manifest(std::string_view bytes, std::int32_t slots) {
  absl::StatusOr<std::pair<ManifestHeader, std::size_t>> header = decode_header(bytes);
  if (!header.ok()) return header.status();
  ManifestContent content;
  content.header = std::move(header->first);
  const std::size_t record_bytes =
      sizeof(RecordFields) + tokens_bytes(content.header.page_tokens) + kChecksumBytes;
  Listing listing(content.header, slots);
  std::size_t at = header->second;
  for (; bytes.size() - at >= record_bytes; at += record_bytes) {
    if (!listing.add(bytes.substr(at, record_bytes))) ++content.bad_records;
  }
  content.torn_bytes = static_cast<std::int64_t>(bytes.size() - at);
  content.missing_slots = listing.missing();
  content.pages = listing.take_pages();
  return content;
}

}  // namespace hisparse::transfer
