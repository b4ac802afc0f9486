#include "text/utf8.h"

#include <gtest/gtest.h>

#include "tests/unit/text_fixtures.h"
#include "text/byte_level.h"
#include "text/detokenizer.h"

namespace hisparse::text {
namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(Utf8, ReplacesBadBytesAsPythonDoes) {
  for (const auto& one : testing::read_json("utf8_replace.json")) {
    const std::string bytes = from_hex(one.at("hex"));
    EXPECT_EQ(to_valid_utf8(bytes), one.at("text").get<std::string>()) << one.at("hex");
    EXPECT_EQ(is_valid_utf8(bytes), one.at("valid").get<bool>()) << one.at("hex");
  }
}

TEST(Utf8, EveryCodePointGoesThereAndBack) {
  for (char32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    std::string bytes;
    append_utf8(code_point, bytes);
    ASSERT_TRUE(is_valid_utf8(bytes)) << static_cast<std::uint32_t>(code_point);
    std::size_t position = 0;
    ASSERT_EQ(next_code_point(bytes, position), code_point);
    ASSERT_EQ(position, bytes.size());
  }
}

TEST(Detokenizer, CharacterSpreadOverTokensComesOnceWhole) {
  Detokenizer detokenizer;
  EXPECT_EQ(detokenizer.push(" \xF0\x9F"), " ");
  EXPECT_EQ(detokenizer.push("\x98"), "");
  EXPECT_EQ(detokenizer.push("\x80!"), "\xF0\x9F\x98\x80!");
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(Detokenizer, IncompleteTailIsOneReplacementCharacter) {
  Detokenizer detokenizer;
  EXPECT_EQ(detokenizer.push("a\xF0\x9F\x98"), "a");
  EXPECT_EQ(detokenizer.flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(ByteLevel, EveryByteGoesThereAndBack) {
  EXPECT_EQ(byte_level_spellings()[' '], "Ġ");
  EXPECT_EQ(byte_level_spellings()['\n'], "Ċ");
  EXPECT_EQ(byte_level_spellings()[0xAD], "Ń");
  for (int byte = 0; byte < kByteValues; ++byte) {
    const std::string decoded =
        byte_level_decode(byte_level_spellings()[static_cast<std::size_t>(byte)]);
    EXPECT_EQ(decoded, std::string(1, static_cast<char>(byte)));
  }
}

TEST(ByteLevel, TokenOutsideTheTableStandsForItself) {
  EXPECT_EQ(byte_level_decode("Ġ好"), "Ġ好");
  EXPECT_EQ(byte_level_decode("Ġa"), " a");
}

}  // namespace
}  // namespace hisparse::text
