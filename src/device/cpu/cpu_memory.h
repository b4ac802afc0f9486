// The allocator of the CPU backend, and the one place where a device address becomes a pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "absl/status/statusor.h"
#include "base/ledger.h"
#include "device/cpu/cpu_device.h"
#include "device/device_ptr.h"

namespace hisparse::device::cpu {

// Bits that no pointer of a process has: an address that carries them faults when dereferenced.
inline constexpr std::uint64_t kAddressTag = std::uint64_t{0x5A} << 56;
inline constexpr std::uint64_t kPointerMask = (std::uint64_t{1} << 56) - 1;

// Right for plain and for tagged addresses.
template <typename T = std::byte>
T* pointer_at(std::uint64_t address) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address & kPointerMask));
}

template <typename T>
T* pointer_to(DevicePtr<T> pointer) {
  return pointer_at<T>(pointer.address());
}

// Owns nothing but the count of what is out: each allocation is a mapping of its own, zero-filled
// by the kernel. With tagged addresses (tests) an allocation ends at a guard page, so that reading
// behind it faults. Any thread.
class CpuMemory final {
 public:
  CpuMemory(AddressMode mode, FreshMemory fresh) : mode_(mode), fresh_(fresh) {}

  // InvalidArgument for 0 bytes, ResourceExhausted when the system has not enough.
  absl::StatusOr<std::uint64_t> allocate(std::size_t bytes, base::MemoryOwner owner);
  void free(std::uint64_t address, std::size_t bytes, base::MemoryOwner owner) noexcept;
  base::Ledger allocated() const;

 private:
  std::size_t guard_bytes() const;

  const AddressMode mode_;
  const FreshMemory fresh_;
  mutable std::mutex mutex_;
  base::Ledger allocated_;  // guarded by mutex_
};

}  // namespace hisparse::device::cpu
