// An address on a device. Not a pointer: there is no operator*, so host code cannot read device
// memory by accident. On the CPU backend test builds hand out tagged addresses, which fault if cast
// and read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace hisparse::device {

// A typed 64-bit device address; a value. Null when default-constructed.
template <typename T>
class DevicePtr {
 public:
  constexpr DevicePtr() = default;
  constexpr explicit DevicePtr(std::uint64_t address) : address_(address) {}
  // DevicePtr<T> -> DevicePtr<const T>.
  template <typename U>
  requires(std::is_same_v<T, const U>) constexpr DevicePtr(DevicePtr<U> other)
      : address_(other.address()) {}

  constexpr std::uint64_t address() const { return address_; }
  constexpr explicit operator bool() const { return address_ != 0; }
  // Element arithmetic, as for pointers.
  constexpr DevicePtr operator+(std::int64_t elements) const {
    return DevicePtr(address_ + static_cast<std::uint64_t>(elements) * sizeof(T));
  }
  constexpr bool operator==(const DevicePtr&) const = default;

 private:
  std::uint64_t address_ = 0;
};

}  // namespace hisparse::device
