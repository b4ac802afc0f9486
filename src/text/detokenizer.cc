#include "text/detokenizer.h"

#include "text/utf8.h"

namespace hisparse::text {

std::string Detokenizer::push(std::string_view bytes) {
  std::string buffer = std::move(tail_);
  buffer.append(bytes);
  tail_.clear();
  // Only the last three bytes can begin a sequence that the end of the buffer cuts off.
  constexpr std::size_t kMaxTail = 3;
  const std::size_t earliest = buffer.size() > kMaxTail ? buffer.size() - kMaxTail : 0;
  std::size_t complete = buffer.size();
  for (std::size_t start = earliest; start < buffer.size(); ++start) {
    if (scan_utf8(buffer, start).unit == Utf8Unit::kIncomplete) {
      complete = start;
      break;
    }
  }
  tail_ = buffer.substr(complete);
  buffer.resize(complete);
  return to_valid_utf8(buffer);
}

std::string Detokenizer::flush() {
  std::string rest = to_valid_utf8(tail_);
  tail_.clear();
  return rest;
}

}  // namespace hisparse::text
