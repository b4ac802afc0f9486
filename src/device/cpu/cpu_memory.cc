#include "device/cpu/cpu_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <limits>
#include <string>

#include "base/check.h"

namespace hisparse::device::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
// Small allocations share mappings of this size.
constexpr std::size_t kChunkBytes = 4 * kHugePageBytes;
constexpr int kNaNByte = 0xFF;

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Null when there is no room.
std::byte* map_pages(std::size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

void unmap(std::byte* base, std::size_t bytes) {
  if (bytes > 0) HS_CHECK(munmap(base, bytes) == 0);
}

// At a multiple of the huge page's size, without which the first and last part would lie in small
// pages.
std::byte* map_aligned(std::size_t bytes) {
  std::byte* base = map_pages(bytes + kHugePageBytes);
  if (base == nullptr) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(base);
  const std::size_t head = round_up(start, kHugePageBytes) - start;
  unmap(base, head);
  unmap(base + head + bytes, kHugePageBytes - head);
  return base + head;
}

}  // namespace

CpuMemory::~CpuMemory() {
  for (const auto& [base, mapping] : mappings_) unmap(base, mapping.bytes);
}

std::byte* CpuMemory::map(std::size_t bytes) {
  const std::size_t usable = round_up(bytes, page_bytes());
  std::byte* base = map_aligned(usable);
  if (base == nullptr) return nullptr;
  // Fewer TLB misses when weights are streamed. Only advice: a refusal costs nothing but speed.
  (void)madvise(base, usable, MADV_HUGEPAGE);
  mappings_[base] = {.bytes = usable};
  return base;
}

std::byte* CpuMemory::allocate_shared(std::size_t bytes) {
  const std::size_t usable = round_up(bytes, kAlignment);
  std::byte* base = chunk_;
  if (usable >= kHugePageBytes) {
    base = map(usable);
  } else if (base == nullptr || mappings_[base].bytes - mappings_[base].used < usable) {
    base = map(kChunkBytes);
    if (base != nullptr) chunk_ = base;
  }
  if (base == nullptr) return nullptr;
  Mapping& mapping = mappings_[base];
  std::byte* pointer = base + mapping.used;
  mapping.used += usable;
  ++mapping.live;
  return pointer;
}

void CpuMemory::release(std::byte* pointer) {
  const auto found = std::prev(mappings_.upper_bound(pointer));
  Mapping& mapping = found->second;
  HS_CHECK(pointer < found->first + mapping.bytes && mapping.live > 0);
  if (--mapping.live > 0) return;
  if (found->first == chunk_) chunk_ = nullptr;
  unmap(found->first, mapping.bytes);
  mappings_.erase(found);
}

std::byte* CpuMemory::allocate_guarded(std::size_t bytes) {
  const std::size_t usable = round_up(bytes, page_bytes());
  std::byte* base = map_pages(usable + page_bytes());
  if (base == nullptr) return nullptr;
  HS_CHECK(mprotect(base + usable, page_bytes(), PROT_NONE) == 0);
  return base + usable - round_up(bytes, kAlignment);
}

absl::StatusOr<std::uint64_t> CpuMemory::allocate(std::size_t bytes, base::MemoryOwner owner) {
  if (bytes == 0) return absl::InvalidArgumentError("an allocation needs at least 1 byte");
  std::byte* pointer = nullptr;
  if (bytes <= std::numeric_limits<std::size_t>::max() / 2) {
    std::lock_guard lock(mutex_);
    pointer = mode_ == AddressMode::kTagged ? allocate_guarded(bytes) : allocate_shared(bytes);
    if (pointer != nullptr) allocated_[owner] += static_cast<std::int64_t>(bytes);
  }
  if (pointer == nullptr) {
    return absl::ResourceExhaustedError("cannot allocate " + std::to_string(bytes) + " bytes for " +
                                        std::string(base::name_of(owner)));
  }
  if (fresh_ == FreshMemory::kNaN) std::memset(pointer, kNaNByte, bytes);
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(pointer));
  return mode_ == AddressMode::kTagged ? (address | kAddressTag) : address;
}

void CpuMemory::free(std::uint64_t address, std::size_t bytes, base::MemoryOwner owner) noexcept {
  std::lock_guard lock(mutex_);
  if (mode_ == AddressMode::kTagged) {
    std::byte* end = pointer_at(address) + round_up(bytes, kAlignment);
    const std::size_t usable = round_up(bytes, page_bytes());
    unmap(end - usable, usable + page_bytes());
  } else {
    release(pointer_at(address));
  }
  allocated_[owner] -= static_cast<std::int64_t>(bytes);
  HS_CHECK(allocated_[owner] >= 0);
}

base::Ledger CpuMemory::allocated() const {
  std::lock_guard lock(mutex_);
  return allocated_;
}

}  // namespace hisparse::device::cpu
