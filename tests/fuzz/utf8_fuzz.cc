// Arbitrary bytes through the UTF-8 functions, the detokenizer and the stop matcher.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/utf8.h"

namespace {

using namespace hisparse::text;  // NOLINT: a fuzz target of this folder only

void check_code_points(const std::string& valid) {
  std::string copy;
  std::size_t position = 0;
  while (position < valid.size()) append_utf8(next_code_point(valid, position), copy);
  HS_CHECK(copy == valid);
}

void check_detokenizer(std::string_view bytes, std::size_t step, const std::string& whole) {
  Detokenizer detokenizer;
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    const std::string shown = detokenizer.push(bytes.substr(at, step));
    HS_CHECK(is_valid_utf8(shown));
    out += shown;
  }
  HS_CHECK(out + detokenizer.flush() == whole);
}

// The first half of the input gives a stop string, its rest the text.
void check_stop_matcher(std::string_view bytes, std::size_t step) {
  const std::size_t length = 1 + static_cast<unsigned char>(bytes.front()) % 4;
  if (bytes.size() <= length) return;
  const std::string stop(bytes.substr(0, length));
  const std::string text(bytes.substr(length));
  StopMatcher matcher({stop});
  std::string shown;
  for (std::size_t at = 0; at < text.size(); at += step)
    shown += matcher.push(text.substr(at, step));
  shown += matcher.flush();
  const std::size_t found = text.find(stop);
  HS_CHECK(matcher.matched().has_value() == (found != std::string::npos));
  HS_CHECK(shown == text.substr(0, found));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.empty()) return 0;
  const std::string whole = to_valid_utf8(bytes);
  HS_CHECK(is_valid_utf8(whole));
  HS_CHECK(is_valid_utf8(bytes) == (whole == bytes));
  check_code_points(whole);
  for (const std::size_t step : {std::size_t{1}, std::size_t{2}, std::size_t{3}, size}) {
    check_detokenizer(bytes, step, whole);
    check_stop_matcher(bytes, step);
  }
  return 0;
}
