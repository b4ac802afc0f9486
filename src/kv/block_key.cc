#include "kv/block_key.h"

#include <xxhash.h>

#include <array>
#include <string_view>

namespace hisparse::kv {
namespace {

BlockKey hash(const void* bytes, std::size_t size) {
  const XXH128_hash_t value = XXH3_128bits(bytes, size);
  return {.low = value.low64, .high = value.high64};
}

// Length first, so that no two lists of fields give the same bytes.
void append_field(std::string& bytes, std::string_view field) {
  const std::uint64_t size = field.size();
  bytes.append(reinterpret_cast<const char*>(&size), sizeof(size));
  bytes.append(field);
}

}  // namespace

BlockKey root_key(const PrefixIdentity& identity) {
  std::string bytes;
  append_field(bytes, identity.cache_salt);
  append_field(bytes, identity.model_digest);
  append_field(bytes, identity.numerics);
  return hash(bytes.data(), bytes.size());
}

BlockKey child_key(const BlockKey& parent, std::span<const base::TokenId> tokens) {
  const BlockKey content = hash(tokens.data(), tokens.size_bytes());
  const std::array<std::uint64_t, 4> link = {parent.low, parent.high, content.low, content.high};
  return hash(link.data(), sizeof(link));
}

}  // namespace hisparse::kv
