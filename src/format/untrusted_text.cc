#include "format/untrusted_text.h"

#include <cstddef>
#include <cstdint>

namespace hisparse::format {
namespace {

constexpr std::size_t kLongestQuotedBytes = 120;

struct SequenceRule {
  std::size_t length;         // 0 for a byte that starts no sequence
  std::uint8_t second_least;  // the range of the second byte excludes overlong forms and surrogates
  std::uint8_t second_most;
};

SequenceRule rule_for(std::uint8_t lead) {
  if (lead <= 0x7f) return {1, 0, 0};
  if (lead >= 0xc2 && lead <= 0xdf) return {2, 0x80, 0xbf};
  if (lead == 0xe0) return {3, 0xa0, 0xbf};
  if (lead == 0xed) return {3, 0x80, 0x9f};
  if (lead >= 0xe1 && lead <= 0xef) return {3, 0x80, 0xbf};
  if (lead == 0xf0) return {4, 0x90, 0xbf};
  if (lead >= 0xf1 && lead <= 0xf3) return {4, 0x80, 0xbf};
  if (lead == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

std::uint8_t byte_at(std::string_view bytes, std::size_t index) {
  return static_cast<std::uint8_t>(bytes[index]);
}

}  // namespace

bool is_valid_utf8(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const SequenceRule rule = rule_for(byte_at(bytes, at));
    if (rule.length == 0 || rule.length > bytes.size() - at) return false;
    if (rule.length > 1) {
      const std::uint8_t second = byte_at(bytes, at + 1);
      if (second < rule.second_least || second > rule.second_most) return false;
    }
    for (std::size_t i = 2; i < rule.length; ++i) {
      if ((byte_at(bytes, at + i) & 0xc0) != 0x80) return false;
    }
    at += rule.length;
  }
  return true;
}

std::string in_quotes(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  for (const char c : text.substr(0, kLongestQuotedBytes)) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 0xf]};
    }
  }
  out += "'";
  if (text.size() > kLongestQuotedBytes) out += "... (" + std::to_string(text.size()) + " bytes)";
  return out;
}

absl::Status bad_file(std::string_view file, std::string_view reason) {
  std::string message(file);
  message += ": ";
  message += reason;
  return absl::InvalidArgumentError(message);
}

}  // namespace hisparse::format
