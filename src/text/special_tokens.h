// Finds special tokens in raw text.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace hisparse::text {

struct SpecialMatch {
  std::size_t begin;  // bytes [begin, end) of the text
  std::size_t end;
  base::TokenId token;
};

// Immutable after construction. Owns the spellings, sorted, so that a match narrows a range of them
// byte by byte.
class SpecialTokens {
 public:
  SpecialTokens() = default;
  // Spellings are distinct and not empty.
  explicit SpecialTokens(std::vector<std::pair<std::string, base::TokenId>> tokens);

  // The leftmost match at or after `from`, the longest at its place, that touches no user span.
  // `user_spans` are sorted, disjoint and inside the text.
  std::optional<SpecialMatch> find(std::string_view text, std::size_t from,
                                   std::span<const UserSpan> user_spans) const;

 private:
  std::optional<SpecialMatch> longest_at(std::string_view text, std::size_t begin,
                                         std::size_t limit) const;

  std::vector<std::pair<std::string, base::TokenId>> tokens_;
  std::array<bool, 256> begins_{};  // first bytes of the spellings
};

}  // namespace hisparse::text
