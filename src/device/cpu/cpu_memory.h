// The allocator of the CPU backend, and the one place where a device address becomes a pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
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

// Plain addresses: allocations below a huge page share mappings (chunks), so that the many small
// weights of a model lie in huge pages too; larger ones have their own. Tagged addresses (tests):
// each allocation is a mapping of its own and ends at a guard page, so that reading behind it
// faults. Memory is zero-filled by the kernel and is given back when all that shares its mapping is
// freed. Any thread.
class CpuMemory final {
 public:
  CpuMemory(AddressMode mode, FreshMemory fresh) : mode_(mode), fresh_(fresh) {}
  ~CpuMemory();
  CpuMemory(const CpuMemory&) = delete;
  CpuMemory& operator=(const CpuMemory&) = delete;

  // InvalidArgument for 0 bytes, ResourceExhausted when the system has not enough.
  absl::StatusOr<std::uint64_t> allocate(std::size_t bytes, base::MemoryOwner owner);
  void free(std::uint64_t address, std::size_t bytes, base::MemoryOwner owner) noexcept;
  base::Ledger allocated() const;

 private:
  struct Mapping {
    std::size_t bytes = 0;
    std::size_t used = 0;  // from the start; never given out again
    std::int64_t live = 0;
  };

  std::byte* allocate_guarded(std::size_t bytes);
  std::byte* allocate_shared(std::size_t bytes);  // mutex_ is held
  std::byte* map(std::size_t bytes);              // mutex_ is held
  void release(std::byte* pointer);               // mutex_ is held

  const AddressMode mode_;
  const FreshMemory fresh_;
  mutable std::mutex mutex_;
  base::Ledger allocated_;                  // guarded by mutex_
  std::map<std::byte*, Mapping> mappings_;  // by start; plain addresses; guarded by mutex_
  std::byte* chunk_ = nullptr;  // the mapping that small ones come from; guarded by mutex_
};

}  // namespace hisparse::device::cpu
