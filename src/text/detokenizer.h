// Incremental bytes -> UTF-8 text.
#pragma once

#include <string>
#include <string_view>

namespace hisparse::text {

// One per output stream; not thread-safe. The concatenation of everything returned equals a lossy
// decode of the concatenated input (bad sequences become U+FFFD by the maximal-subpart rule), for
// every way of cutting the input. At most 3 bytes are held back.
class Detokenizer {
 public:
  // Adds bytes; returns the text that is complete now (possibly empty), always valid UTF-8.
  std::string push(std::string_view bytes);
  // End of stream: an incomplete tail becomes one U+FFFD.
  std::string flush();

 private:
  std::string tail_;
};

}  // namespace hisparse::text
