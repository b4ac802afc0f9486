#include "text/byte_level.h"

#include "text/utf8.h"

namespace hisparse::text {
namespace {

constexpr int kShiftedBytes = 68;
constexpr char32_t kShiftedBase = 0x100;

constexpr bool stands_for_itself(char32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

// [n]: the byte that U+0100 + n spells.
constexpr std::array<unsigned char, kShiftedBytes> kShifted = [] {
  std::array<unsigned char, kShiftedBytes> shifted{};
  std::size_t next = 0;
  for (int byte = 0; byte < kByteValues; ++byte) {
    if (!stands_for_itself(static_cast<char32_t>(byte))) {
      shifted[next++] = static_cast<unsigned char>(byte);
    }
  }
  return shifted;
}();

std::array<std::string, kByteValues> make_spellings() {
  std::array<std::string, kByteValues> spellings;
  for (char32_t byte = 0; byte < kByteValues; ++byte) {
    if (stands_for_itself(byte)) append_utf8(byte, spellings[byte]);
  }
  for (std::size_t i = 0; i < kShifted.size(); ++i) {
    append_utf8(kShiftedBase + static_cast<char32_t>(i), spellings[kShifted[i]]);
  }
  return spellings;
}

}  // namespace

const std::array<std::string, kByteValues>& byte_level_spellings() {
  static const std::array<std::string, kByteValues> spellings = make_spellings();
  return spellings;
}

std::optional<unsigned char> byte_level_byte(char32_t code_point) {
  if (stands_for_itself(code_point)) return static_cast<unsigned char>(code_point);
  if (code_point >= kShiftedBase && code_point < kShiftedBase + kShiftedBytes) {
    return kShifted[code_point - kShiftedBase];
  }
  return std::nullopt;
}

std::string byte_level_decode(std::string_view token) {
  std::string bytes;
  std::size_t position = 0;
  while (position < token.size()) {
    const std::optional<unsigned char> byte = byte_level_byte(next_code_point(token, position));
    if (!byte) return std::string(token);
    bytes.push_back(static_cast<char>(*byte));
  }
  return bytes;
}

}  // namespace hisparse::text
