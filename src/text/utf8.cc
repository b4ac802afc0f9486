#include "text/utf8.h"

#include "base/check.h"

namespace hisparse::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr char32_t kMaxCodePoint = 0x10FFFF;

// What a lead byte promises, and the range that its second byte must lie in (Unicode table 3-7).
struct Lead {
  std::size_t length;  // 0: not a lead byte
  unsigned char second_low = 0x80;
  unsigned char second_high = 0xBF;
};

Lead classify_lead(unsigned char byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

Utf8Scan scan_utf8(std::string_view bytes, std::size_t position) {
  const Lead lead = classify_lead(static_cast<unsigned char>(bytes[position]));
  if (lead.length == 0) return {Utf8Unit::kBad, 1};
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (position + i == bytes.size()) return {Utf8Unit::kIncomplete, i};
    const auto byte = static_cast<unsigned char>(bytes[position + i]);
    const unsigned char low = i == 1 ? lead.second_low : 0x80;
    const unsigned char high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {Utf8Unit::kBad, i};
  }
  return {Utf8Unit::kCodePoint, lead.length};
}

bool is_valid_utf8(std::string_view bytes) {
  std::size_t position = 0;
  while (position < bytes.size()) {
    const Utf8Scan scan = scan_utf8(bytes, position);
    if (scan.unit != Utf8Unit::kCodePoint) return false;
    position += scan.length;
  }
  return true;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  std::size_t position = 0;
  while (position < bytes.size()) {
    const Utf8Scan scan = scan_utf8(bytes, position);
    if (scan.unit == Utf8Unit::kCodePoint) {
      out.append(bytes.substr(position, scan.length));
    } else {
      out.append(kReplacement);
    }
    position += scan.length;
  }
  return out;
}

char32_t next_code_point(std::string_view valid_utf8, std::size_t& position) {
  HS_CHECK(position < valid_utf8.size());
  const auto lead = static_cast<unsigned char>(valid_utf8[position]);
  const std::size_t length = classify_lead(lead).length;
  HS_CHECK(length > 0 && length <= valid_utf8.size() - position);
  constexpr unsigned char kPayloadMask[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  char32_t code_point = lead & kPayloadMask[length];
  for (std::size_t i = 1; i < length; ++i) {
    code_point = (code_point << 6) | (static_cast<unsigned char>(valid_utf8[position + i]) & 0x3F);
  }
  position += length;
  return code_point;
}

void append_utf8(char32_t code_point, std::string& out) {
  HS_CHECK(code_point <= kMaxCodePoint && !(code_point >= 0xD800 && code_point <= 0xDFFF));
  const auto continuation = [&](int shift) {
    out.push_back(static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)));
  };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (code_point >> 6)));
    continuation(0);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (code_point >> 12)));
    continuation(6);
    continuation(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | (code_point >> 18)));
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

}  // namespace hisparse::text
