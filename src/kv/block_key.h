// Content keys of blocks: a chain of 128-bit hashes. A key finds a candidate; tokens decide (a hit
// compares them), so a collision can never leak another prompt's keys and values.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>

#include "base/ids.h"

namespace hisparse::kv {

struct BlockKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  auto operator<=>(const BlockKey&) const = default;
};

struct BlockKeyHash {
  std::size_t operator()(const BlockKey& key) const noexcept { return key.low; }
};

// Everything besides the tokens that decides the bits of a page.
struct PrefixIdentity {
  std::string cache_salt;    // the tenant's; empty for none
  std::string model_digest;  // weights and metadata
  std::string numerics;      // numerics version, dtypes, ISA level, tensor-parallel size
};

// The key that stands before a sequence's first block.
BlockKey root_key(const PrefixIdentity& identity);

// The key of a full block with these tokens behind `parent`.
BlockKey child_key(const BlockKey& parent, std::span<const base::TokenId> tokens);

}  // namespace hisparse::kv
