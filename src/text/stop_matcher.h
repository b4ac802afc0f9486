// Stop strings over a stream of text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hisparse::text {

// One per output stream; not thread-safe. Nothing of a matched stop string is ever returned; text is held
// back only while it may be the beginning of one. The earliest match wins (smallest end; among equal ends
// the longest string).
class StopMatcher {
 public:
  // Empty strings are not allowed (the API refuses them).
  explicit StopMatcher(std::vector<std::string> stops);

  // Adds text; returns what may be shown now. After a match it returns what stood before the match once,
  // then always nothing.
  std::string push(std::string_view text);
  // End of stream without a match: returns the held text.
  std::string flush();
  // The stop string that matched, if any.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::optional<std::string> matched_;
};

}  // namespace hisparse::text
