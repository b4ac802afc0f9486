// What the tests of the CPU operators share. Devices hand out tagged addresses and NaN-filled
// memory, so that a stray dereference faults and a read of what was never written shows.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/float_formats.h"
#include "base/thread_pool.h"
#include "device/cpu/cpu_device.h"

namespace hisparse::device {

inline CpuDeviceOptions test_options(IsaChoice isa = IsaChoice::kBest) {
  return {.addresses = AddressMode::kTagged, .fresh = FreshMemory::kNaN, .isa = isa};
}

// The levels of this machine.
inline std::vector<IsaChoice> isa_levels() {
  base::ThreadPool pool(1);
  std::vector<IsaChoice> levels;
  for (IsaChoice level : {IsaChoice::kX86_64V2, IsaChoice::kX86_64V3, IsaChoice::kX86_64V4}) {
    if (make_cpu_device(pool, test_options(level)).ok()) levels.push_back(level);
  }
  return levels;
}

// A device with a pool and one stream, and plain-vector access to its memory.
class TestDevice final {
 public:
  // On threads of its own.
  explicit TestDevice(const CpuDeviceOptions& options = test_options(), int threads = 2)
      : pool(std::make_unique<base::ThreadPool>(threads)) {
    open(*pool, options);
  }
  // On threads that it shares with other ranks.
  TestDevice(const CpuDeviceOptions& options, base::ThreadPool& shared) { open(shared, options); }
  TestDevice(IsaChoice isa, int threads) : TestDevice(test_options(isa), threads) {}

  Buffer allocate(std::size_t bytes) {
    auto buffer = device->allocate(bytes, base::MemoryOwner::kActivations);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return std::move(*buffer);
  }
  Buffer floats(std::int64_t count) {
    return allocate(static_cast<std::size_t>(count) * sizeof(float));
  }

  template <typename T>
  Buffer upload(const std::vector<T>& values) {
    Buffer buffer = allocate(values.size() * sizeof(T));
    device->copy_to_device(std::as_bytes(std::span(values)), buffer.as<std::byte>(), *stream);
    synchronize();
    return buffer;
  }

  template <typename T = float>
  std::vector<T> download(const Buffer& buffer) {
    std::vector<T> values(buffer.bytes() / sizeof(T));
    device->copy_to_host(buffer.as<std::byte>(), std::as_writable_bytes(std::span(values)),
                         *stream);
    synchronize();
    return values;
  }

  void synchronize() { EXPECT_TRUE(device->synchronize(device->record(*stream)).ok()); }

  std::unique_ptr<Weight> weight(const std::vector<float>& values, std::int64_t rows,
                                 Compute compute) {
    const auto cols = static_cast<std::int64_t>(values.size()) / rows;
    auto packed = device->prepare_weight({.shape = {.rows = rows, .cols = cols},
                                          .read_row =
                                              [&](std::int64_t row, std::span<float> out) {
                                                std::memcpy(out.data(), values.data() + row * cols,
                                                            out.size_bytes());
                                              },
                                          .read_blocks = {}},
                                         compute);
    EXPECT_TRUE(packed.ok()) << packed.status();
    return std::move(*packed);
  }

  std::unique_ptr<base::ThreadPool> pool;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;

 private:
  void open(base::ThreadPool& threads, const CpuDeviceOptions& options) {
    device = std::move(*make_cpu_device(threads, options));
    stream = device->create_stream();
  }
};

inline std::vector<float> random_floats(std::int64_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (auto& value : values) value = normal(generator);
  return values;
}

inline float rounded_to_bf16(float value) { return base::to_float(base::to_bf16(value)); }

// Equality of bits: NaN equals itself.
inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

inline std::span<const float> row_of(const std::vector<float>& values, std::int64_t row,
                                     std::int64_t width) {
  return std::span(values).subspan(static_cast<std::size_t>(row * width),
                                   static_cast<std::size_t>(width));
}

}  // namespace hisparse::device
