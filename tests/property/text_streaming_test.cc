// Streams give the same text however their input is cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/utf8.h"

namespace hisparse::text {
namespace {

constexpr int kMaxExhaustiveBytes = 10;

std::string random_text(std::mt19937& rng, std::string_view alphabet, std::size_t length) {
  std::string text;
  for (std::size_t i = 0; i < length; ++i) text.push_back(alphabet[rng() % alphabet.size()]);
  return text;
}

// Calls `check` with `text` cut in every way there is; bit i of the mask cuts behind byte i.
template <typename Check>
void for_all_cuts(const std::string& text, Check check) {
  const std::size_t ways = std::size_t{1} << (text.empty() ? 0 : text.size() - 1);
  for (std::size_t mask = 0; mask < ways; ++mask) {
    std::vector<std::string> parts(1);
    for (std::size_t i = 0; i < text.size(); ++i) {
      parts.back().push_back(text[i]);
      if (i + 1 < text.size() && (mask >> i & 1) != 0) parts.emplace_back();
    }
    check(parts);
  }
}

TEST(DetokenizerProperty, EveryCutGivesTheLossyDecodeOfTheWhole) {
  std::mt19937 rng(1);
  constexpr std::string_view kAlphabet = "a\x80\x90\xA0\xBF\xC2\xE0\xE2\xED\xF0\xF1\xF4\xFF";
  for (int round = 0; round < 400; ++round) {
    const std::string text = random_text(rng, kAlphabet, rng() % kMaxExhaustiveBytes);
    const std::string whole = to_valid_utf8(text);
    for_all_cuts(text, [&](const std::vector<std::string>& parts) {
      Detokenizer detokenizer;
      std::string out;
      std::size_t seen = 0;
      for (const std::string& part : parts) {
        const std::string shown = detokenizer.push(part);
        ASSERT_TRUE(is_valid_utf8(shown));
        out += shown;
        seen += part.size();
        // At most three bytes are held back.
        const std::string early =
            to_valid_utf8(std::string_view(text).substr(0, seen - std::min<std::size_t>(seen, 3)));
        ASSERT_GE(out.size() + 3, early.size());
      }
      ASSERT_EQ(out + detokenizer.flush(), whole);
    });
  }
}

struct Found {
  std::string shown;
  std::string stop;  // empty: none
};

Found naive_search(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::string longest;
    for (const std::string& stop : stops) {
      const bool here = std::string_view(text).substr(0, end).ends_with(stop);
      if (here && stop.size() > longest.size()) longest = stop;
    }
    if (!longest.empty()) return {text.substr(0, end - longest.size()), longest};
  }
  return {text, ""};
}

// The longest suffix of `text` that a stop string begins with.
std::size_t true_hold(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t length = text.size(); length > 0; --length) {
    for (const std::string& stop : stops) {
      if (length < stop.size() && stop.starts_with(text.substr(text.size() - length)))
        return length;
    }
  }
  return 0;
}

TEST(StopMatcherProperty, EveryCutGivesTheNaiveSearchOfTheWhole) {
  std::mt19937 rng(2);
  for (int round = 0; round < 1500; ++round) {
    std::vector<std::string> stops(rng() % 4);
    for (std::string& stop : stops) stop = random_text(rng, "ab", 1 + rng() % 4);
    const std::string text = random_text(rng, "aabc", rng() % kMaxExhaustiveBytes);
    const Found expected = naive_search(text, stops);
    for_all_cuts(text, [&](const std::vector<std::string>& parts) {
      StopMatcher matcher(stops);
      std::string shown, seen;
      for (const std::string& part : parts) {
        shown += matcher.push(part);
        seen += part;
        if (!matcher.matched()) {
          ASSERT_EQ(shown.size() + true_hold(seen, stops), seen.size());
        }
      }
      shown += matcher.flush();
      ASSERT_EQ(shown, expected.shown) << text;
      ASSERT_EQ(matcher.matched().value_or(""), expected.stop) << text;
    });
  }
}

}  // namespace
}  // namespace hisparse::text
