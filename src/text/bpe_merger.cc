#include "text/bpe_merger.h"

#include <algorithm>

#include "base/check.h"

namespace hisparse::text {
namespace {

constexpr base::TokenId kDead = -2;
constexpr std::int32_t kNone = -1;

std::uint64_t pair_key(base::TokenId left, base::TokenId right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
         static_cast<std::uint32_t>(right);
}

// For std heap functions, which keep the greatest on top.
bool is_later(const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

std::size_t BpeMerger::PairHash::operator()(std::uint64_t pair) const noexcept {
  // The finaliser of splitmix64: the identity would put all pairs with one right token in few
  // buckets.
  pair = (pair ^ (pair >> 30)) * 0xBF58476D1CE4E5B9ULL;
  pair = (pair ^ (pair >> 27)) * 0x94D049BB133111EBULL;
  return static_cast<std::size_t>(pair ^ (pair >> 31));
}

void BpeMerger::set_byte_token(unsigned char byte, base::TokenId token) {
  HS_CHECK(token >= 0 && byte_tokens_[byte] == kNoToken);
  byte_tokens_[byte] = token;
}

bool BpeMerger::add_merge(base::TokenId left, base::TokenId right, base::TokenId result) {
  const auto rank = static_cast<std::int32_t>(merges_.size());
  return merges_.emplace(pair_key(left, right), Merge{rank, result}).second;
}

const BpeMerger::Merge* BpeMerger::find_merge(base::TokenId left, base::TokenId right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeMerger::push_candidate(BpeScratch& scratch, std::int32_t position) const {
  const BpeScratch::Symbol& left = scratch.symbols[static_cast<std::size_t>(position)];
  if (left.next == kNone) return;
  const base::TokenId right = scratch.symbols[static_cast<std::size_t>(left.next)].token;
  const Merge* merge = find_merge(left.token, right);
  if (!merge) return;
  scratch.heap.push_back({merge->rank, position, left.token, right});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), is_later);
}

void BpeMerger::apply(const BpeScratch::Candidate& candidate, BpeScratch& scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols;
  BpeScratch::Symbol& left = symbols[static_cast<std::size_t>(candidate.position)];
  if (left.token != candidate.left || left.next == kNone) return;
  BpeScratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
  if (right.token != candidate.right) return;
  left.token = find_merge(left.token, right.token)->result;
  right.token = kDead;
  left.next = right.next;
  if (left.next != kNone)
    symbols[static_cast<std::size_t>(left.next)].previous = candidate.position;
  if (left.previous != kNone) push_candidate(scratch, left.previous);
  push_candidate(scratch, candidate.position);
}

void BpeMerger::encode(std::string_view piece, BpeScratch& scratch,
                       std::vector<base::TokenId>& out) const {
  HS_CHECK(piece.size() <= kMaxPieceBytes);
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols;
  symbols.clear();
  scratch.heap.clear();
  for (const char byte : piece) {
    const base::TokenId token = byte_tokens_[static_cast<unsigned char>(byte)];
    if (token == kNoToken) continue;
    const auto index = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({token, index - 1, index + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = kNone;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(symbols.size()); ++i) {
    push_candidate(scratch, i);
  }
  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), is_later);
    const BpeScratch::Candidate candidate = scratch.heap.back();
    scratch.heap.pop_back();
    apply(candidate, scratch);
  }
  for (std::int32_t i = 0; i != kNone; i = symbols[static_cast<std::size_t>(i)].next) {
    out.push_back(symbols[static_cast<std::size_t>(i)].token);
  }
}

}  // namespace hisparse::text
