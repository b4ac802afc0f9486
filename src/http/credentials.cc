#include "http/credentials.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>

namespace hisparse::http {
namespace {

constexpr std::string_view kScheme = "bearer ";
constexpr std::size_t kMaxRequestIdBytes = 128;
constexpr std::size_t kGeneratedIdBytes = 32;

char lower(char byte) { return byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 32) : byte; }

bool is_safe(char byte) { return byte > ' ' && byte <= '~'; }

}  // namespace

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

bool ApiKeys::holds(std::string_view presented) const {
  bool found = false;
  for (const std::string& key : keys_) {
    std::size_t difference = key.size() ^ presented.size();
    // Runs over what was presented, so the length of a key does not show either.
    for (std::size_t i = 0; i < presented.size(); ++i) {
      const char expected = key.empty() ? '\0' : key[i % key.size()];
      difference |= static_cast<unsigned char>(expected ^ presented[i]);
    }
    found |= difference == 0;
  }
  return found && !presented.empty();
}

bool ApiKeys::accept(std::string_view authorization, std::string_view x_api_key) const {
  if (keys_.empty()) return true;
  if (equals_ignoring_case(authorization.substr(0, kScheme.size()), kScheme)) {
    std::string_view key = authorization.substr(kScheme.size());
    key.remove_prefix(std::min(key.find_first_not_of(' '), key.size()));
    if (holds(key)) return true;
  }
  return holds(x_api_key);
}

std::string request_id_from(std::string_view header,
                            const std::function<std::uint64_t()>& entropy) {
  if (!header.empty() && header.size() <= kMaxRequestIdBytes &&
      std::ranges::all_of(header, is_safe)) {
    return std::string(header);
  }
  char text[kGeneratedIdBytes + 1];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(entropy()),
                static_cast<unsigned long long>(entropy()));
  return text;
}

}  // namespace hisparse::http
