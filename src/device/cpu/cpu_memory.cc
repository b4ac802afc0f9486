#include "device/cpu/cpu_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <string>

#include "base/check.h"

namespace hisparse::device::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr int kNaNByte = 0xFF;

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::size_t CpuMemory::guard_bytes() const {
  return mode_ == AddressMode::kTagged ? page_bytes() : 0;
}

absl::StatusOr<std::uint64_t> CpuMemory::allocate(std::size_t bytes, base::MemoryOwner owner) {
  if (bytes == 0) return absl::InvalidArgumentError("an allocation needs at least 1 byte");
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
    return absl::ResourceExhaustedError("cannot allocate " + std::to_string(bytes) + " bytes");
  }
  const std::size_t usable = round_up(bytes, page_bytes());
  void* base = mmap(nullptr, usable + guard_bytes(), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError("cannot allocate " + std::to_string(bytes) + " bytes for " +
                                        std::string(base::name_of(owner)));
  }
  auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(base));
  // Fewer TLB misses when weights are streamed. Only advice: a refusal costs nothing but speed.
  if (usable >= kHugePageBytes) (void)madvise(base, usable, MADV_HUGEPAGE);
  if (mode_ == AddressMode::kTagged) {
    HS_CHECK(mprotect(pointer_at(address + usable), guard_bytes(), PROT_NONE) == 0);
    address += usable - round_up(bytes, kAlignment);
  }
  if (fresh_ == FreshMemory::kNaN) std::memset(pointer_at(address), kNaNByte, bytes);
  {
    std::lock_guard lock(mutex_);
    allocated_[owner] += static_cast<std::int64_t>(bytes);
  }
  return mode_ == AddressMode::kTagged ? (address | kAddressTag) : address;
}

void CpuMemory::free(std::uint64_t address, std::size_t bytes, base::MemoryOwner owner) noexcept {
  const std::size_t usable = round_up(bytes, page_bytes());
  auto base = reinterpret_cast<std::uintptr_t>(pointer_at(address));
  base -= base % page_bytes();
  HS_CHECK(munmap(pointer_at(base), usable + guard_bytes()) == 0);
  std::lock_guard lock(mutex_);
  allocated_[owner] -= static_cast<std::int64_t>(bytes);
  HS_CHECK(allocated_[owner] >= 0);
}

base::Ledger CpuMemory::allocated() const {
  std::lock_guard lock(mutex_);
  return allocated_;
}

}  // namespace hisparse::device::cpu
