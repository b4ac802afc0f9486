// Byte-pair merging by rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace hisparse::text {

// Working memory of BpeMerger::encode, so that a text of many pieces allocates once. Plain scratch:
// holds nothing between calls.
struct BpeScratch {
  struct Symbol {
    base::TokenId token;  // kDead after it was merged into its left neighbour
    std::int32_t previous;
    std::int32_t next;
  };
  struct Candidate {
    std::int32_t rank;
    std::int32_t position;
    base::TokenId
        left;  // the pair this entry was made for: another pair there now means it is stale
    base::TokenId right;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

// The merge table of one vocabulary. Immutable after loading; any thread may encode.
class BpeMerger {
 public:
  // Pieces are indexed with 32 bits.
  static constexpr std::size_t kMaxPieceBytes = std::size_t{1} << 30;

  // The token that stands for one byte; at most once per byte.
  void set_byte_token(unsigned char byte, base::TokenId token);
  // Rank rises with each call. False if the pair already has a merge.
  bool add_merge(base::TokenId left, base::TokenId right, base::TokenId result);
  void reserve(std::size_t merges) { merges_.reserve(merges); }

  // Appends the tokens of `piece` (at most kMaxPieceBytes): the pair of lowest rank first, the
  // leftmost among equals, O(n log n). Bytes without a token are dropped, as Hugging Face does
  // without an unk_token.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<base::TokenId>& out) const;

 private:
  struct Merge {
    std::int32_t rank;
    base::TokenId result;
  };
  struct PairHash {
    std::size_t operator()(std::uint64_t pair) const noexcept;
  };

  const Merge* find_merge(base::TokenId left, base::TokenId right) const;
  void push_candidate(BpeScratch& scratch, std::int32_t position) const;
  void apply(const BpeScratch::Candidate& candidate, BpeScratch& scratch) const;

  std::vector<base::TokenId> byte_tokens_ = std::vector<base::TokenId>(256, kNoToken);
  std::unordered_map<std::uint64_t, Merge, PairHash> merges_;

  static constexpr base::TokenId kNoToken = -1;
};

}  // namespace hisparse::text
