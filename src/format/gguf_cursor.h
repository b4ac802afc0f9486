// Reads little-endian values from untrusted bytes, front to back.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace hisparse::format {

// Borrows the bytes. Each read gives nothing, and moves nowhere, when what it needs is not there.
class GgufCursor final {
 public:
  static_assert(std::endian::native == std::endian::little, "values are read in place");

  explicit GgufCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return bytes_.size() - position_; }

  template <typename T>
  std::optional<T> read() {
    if (remaining() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(value));
    position_ += sizeof(value);
    return value;
  }

  // A u64 length and that many bytes; the view is into the borrowed bytes.
  std::optional<std::string_view> read_string() {
    const std::uint64_t start = position_;
    const std::optional<std::uint64_t> length = read<std::uint64_t>();
    if (!length || *length > remaining()) {
      position_ = start;
      return std::nullopt;
    }
    const auto* text = reinterpret_cast<const char*>(bytes_.data() + position_);
    position_ += *length;
    return std::string_view(text, *length);
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t position_ = 0;
};

}  // namespace hisparse::format
