// API keys and request ids: what headers of a client may say about itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hisparse::http {

// Immutable; any thread.
class ApiKeys final {
 public:
  explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  // True when there are no keys, or when `authorization` ("Bearer K", scheme in any case) or
  // `x_api_key` is one of them. The time does not depend on how much of a key is right.
  bool accept(std::string_view authorization, std::string_view x_api_key) const;

 private:
  bool holds(std::string_view presented) const;
  std::vector<std::string> keys_;
};

// The client's id when it is 1 to 128 bytes of printable ASCII without spaces, else a fresh one of
// 32 hexadecimal digits.
std::string request_id_from(std::string_view header, const std::function<std::uint64_t()>& entropy);

bool equals_ignoring_case(std::string_view a, std::string_view b);

}  // namespace hisparse::http
