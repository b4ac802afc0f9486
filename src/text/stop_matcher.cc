#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hisparse::text {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  patterns_.reserve(stops.size());
  for (std::string& stop : stops) patterns_.push_back(make_pattern(std::move(stop)));
}

StopMatcher::Pattern StopMatcher::make_pattern(std::string text) {
  HS_CHECK(!text.empty());
  std::vector<std::size_t> border(text.size(), 0);
  std::size_t length = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = border[length - 1];
    if (text[i] == text[length]) ++length;
    border[i] = length;
  }
  return {std::move(text), std::move(border)};
}

void StopMatcher::advance(Pattern& pattern, char byte) {
  while (pattern.matched > 0 && pattern.text[pattern.matched] != byte) {
    pattern.matched = pattern.border[pattern.matched - 1];
  }
  if (pattern.text[pattern.matched] == byte) ++pattern.matched;
}

std::string StopMatcher::push(std::string_view text) {
  if (matched_) return {};
  std::string buffer = std::move(held_);
  held_.clear();
  for (const char byte : text) {
    buffer.push_back(byte);
    const Pattern* found = nullptr;
    for (Pattern& pattern : patterns_) {
      advance(pattern, byte);
      const bool complete = pattern.matched == pattern.text.size();
      if (complete && (!found || pattern.text.size() > found->text.size())) found = &pattern;
    }
    if (found) {
      buffer.resize(buffer.size() - found->text.size());
      matched_ = found->text;
      return buffer;
    }
  }
  std::size_t keep = 0;
  for (const Pattern& pattern : patterns_) keep = std::max(keep, pattern.matched);
  held_ = buffer.substr(buffer.size() - keep);
  buffer.resize(buffer.size() - keep);
  return buffer;
}

std::string StopMatcher::flush() { return std::exchange(held_, {}); }

}  // namespace hisparse::text
