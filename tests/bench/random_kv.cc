#include "tests/bench/random_kv.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "device/cpu/cpu_memory.h"

namespace hisparse::bench {
RandomKv::RandomKv(const Machine& machine, std::int64_t sequences, std::int64_t tokens,
                   std::int32_t page_tokens)
    : sequences_(sequences) {
  pages_.pages_per_sequence = (tokens + page_tokens - 1) / page_tokens;
  pages_.page_tokens = page_tokens;
  pages_.v_offset = plane_bytes();
  pages_.kv_heads = kKvHeads;
  pages_.head_dim = kHeadDim;
  pages_.dtype = base::DType::kBF16;
  std::vector<std::uint64_t> addresses(
      static_cast<std::size_t>(sequences * pages_.pages_per_sequence));
  slab_ = machine.allocate(static_cast<std::int64_t>(addresses.size()) * 2 * plane_bytes());
  std::iota(addresses.begin(), addresses.end(), 0);
  std::shuffle(addresses.begin(), addresses.end(), std::mt19937(1));
  for (std::uint64_t& address : addresses) {
    address =
        (slab_.as<std::byte>() + static_cast<std::int64_t>(address) * 2 * plane_bytes()).address();
  }
  table_ = machine.upload(addresses);
  pages_.addresses = table_.as<const std::uint64_t>();
  fill(machine);
}

const std::byte* RandomKv::page(std::int64_t sequence, std::int64_t page) const {
  const std::uint64_t* addresses = device::cpu::pointer_to(pages_.addresses);
  return device::cpu::pointer_at<const std::byte>(
      addresses[sequence * pages_.pages_per_sequence + page]);
}

// Every page is a copy of one of random values between 1/8 and 1/2.
void RandomKv::fill(const Machine& machine) {
  constexpr std::uint16_t kEighth = 0x3e00;  // bf16
  constexpr std::uint16_t kSignAndMantissa = 0x80ff;
  std::minstd_rand random(1);
  const std::int64_t page_bytes = 2 * plane_bytes();
  std::vector<std::uint16_t> page(static_cast<std::size_t>(page_bytes) / sizeof(std::uint16_t));
  for (std::uint16_t& value : page) {
    value = static_cast<std::uint16_t>(kEighth | (random() & kSignAndMantissa));
  }
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(slab_.bytes()); at += page_bytes) {
    machine.device->copy_to_device(std::as_bytes(std::span(page)), slab_.as<std::byte>() + at,
                                   *machine.stream);
  }
  machine.synchronize();
}

}  // namespace hisparse::bench
