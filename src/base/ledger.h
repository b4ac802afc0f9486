// Who holds how many bytes in which memory. The same owners appear in the start-up table, in
// /metrics and in the allocators' own counts, and the three must agree (ARCHITECTURE section 4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hisparse::base {

enum class MemoryOwner : std::uint8_t {
  kWeights,
  kActivations,
  kKvSlab,
  kKvHost,
  kTables,
  kStaging,
  kMetadata
};
inline constexpr std::size_t kMemoryOwners = 7;

constexpr std::string_view name_of(MemoryOwner owner) {
  switch (owner) {
    case MemoryOwner::kWeights:
      return "weights";
    case MemoryOwner::kActivations:
      return "activations";
    case MemoryOwner::kKvSlab:
      return "kv_slab";
    case MemoryOwner::kKvHost:
      return "kv_host";
    case MemoryOwner::kTables:
      return "tables";
    case MemoryOwner::kStaging:
      return "staging";
    case MemoryOwner::kMetadata:
      return "metadata";
  }
  return "unknown";
}

// A plain value: bytes by owner.
struct Ledger {
  std::array<std::int64_t, kMemoryOwners> bytes{};

  std::int64_t& operator[](MemoryOwner owner) { return bytes[static_cast<std::size_t>(owner)]; }
  std::int64_t operator[](MemoryOwner owner) const {
    return bytes[static_cast<std::size_t>(owner)];
  }

  std::int64_t total() const {
    std::int64_t sum = 0;
    for (std::int64_t value : bytes) sum += value;
    return sum;
  }

  Ledger& operator+=(const Ledger& other) {
    for (std::size_t i = 0; i < kMemoryOwners; ++i) bytes[i] += other.bytes[i];
    return *this;
  }

  bool operator==(const Ledger&) const = default;
};

}  // namespace hisparse::base
