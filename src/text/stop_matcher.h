// Stop strings over a stream of text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hisparse::text {

// One per output stream; not thread-safe. Nothing of a matched stop string is ever returned; text
// is held back only while it may be the beginning of one. The earliest match wins (smallest end;
// among equal ends the longest string).
class StopMatcher {
 public:
  // Empty strings are not allowed (the API refuses them).
  explicit StopMatcher(std::vector<std::string> stops);

  // Adds text; returns what may be shown now. After a match it returns what stood before the match
  // once, then always nothing.
  std::string push(std::string_view text);
  // End of stream without a match: returns the held text.
  std::string flush();
  // The stop string that matched, if any.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  // One stop string as a Knuth-Morris-Pratt automaton: a long repetitive stop string costs O(1) per
  // byte, not its length.
  struct Pattern {
    std::string text;
    std::vector<std::size_t> border;  // [n]: longest proper border of the first n + 1 bytes
    std::size_t matched = 0;          // bytes of `text` that the stream ends with
  };

  static Pattern make_pattern(std::string text);
  static void advance(Pattern& pattern, char byte);

  std::vector<Pattern> patterns_;
  std::string held_;  // as long as the longest Pattern::matched
  std::optional<std::string> matched_;
};

}  // namespace hisparse::text
