#include "text/special_tokens.h"

#include <algorithm>

#include "base/check.h"

namespace hisparse::text {

SpecialTokens::SpecialTokens(std::vector<std::pair<std::string, base::TokenId>> tokens)
    : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end());
  for (const auto& [spelling, token] : tokens_) {
    HS_CHECK(!spelling.empty());
    begins_[static_cast<unsigned char>(spelling.front())] = true;
  }
}

std::optional<SpecialMatch> SpecialTokens::find(std::string_view text, std::size_t from,
                                                std::span<const UserSpan> user_spans) const {
  auto span = std::partition_point(user_spans.begin(), user_spans.end(),
                                   [&](const UserSpan& user) { return user.end <= from; });
  std::size_t begin = from;
  while (begin < text.size()) {
    while (span != user_spans.end() && span->end <= begin) ++span;
    const std::size_t limit = span == user_spans.end() ? text.size() : span->begin;
    if (begin >= limit && span != user_spans.end() && span->end > begin) {
      begin = span->end;
      continue;
    }
    if (begins_[static_cast<unsigned char>(text[begin])]) {
      if (std::optional<SpecialMatch> match = longest_at(text, begin, limit)) return match;
    }
    ++begin;
  }
  return std::nullopt;
}

std::optional<SpecialMatch> SpecialTokens::longest_at(std::string_view text, std::size_t begin,
                                                      std::size_t limit) const {
  auto low = tokens_.begin();
  auto high = tokens_.end();
  std::optional<SpecialMatch> longest;
  for (std::size_t end = begin; end < limit && low != high; ++end) {
    const std::size_t depth = end - begin;
    // Spellings that share the first `depth` bytes: shorter ones sort first and have just been
    // seen.
    const auto byte_at = [depth](const auto& token) {
      return depth < token.first.size() ? static_cast<unsigned char>(token.first[depth]) : -1;
    };
    const int wanted = static_cast<unsigned char>(text[end]);
    low = std::partition_point(low, high, [&](const auto& t) { return byte_at(t) < wanted; });
    high = std::partition_point(low, high, [&](const auto& t) { return byte_at(t) <= wanted; });
    if (low != high && low->first.size() == depth + 1) {
      longest = SpecialMatch{begin, end + 1, low->second};
    }
  }
  return longest;
}

}  // namespace hisparse::text
