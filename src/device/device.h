// The Device interface: memory, streams, events and the operator table. Written once against this,
// the model runs on the plain CPU (device/cpu, also the oracle) and later on CUDA (ARCHITECTURE
// section 6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/ledger.h"
#include "device/device_ptr.h"
#include "device/operators.h"

namespace hisparse::device {

class Device;

// Owns one allocation; move-only; frees it on destruction. Must not outlive its device. Destroy
// only after every operation that touches it has completed.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, std::uint64_t address, std::size_t bytes, base::MemoryOwner owner)
      : device_(device), address_(address), bytes_(bytes), owner_(owner) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();

  template <typename T>
  DevicePtr<T> as() const {
    return DevicePtr<T>(address_);
  }
  std::size_t bytes() const { return bytes_; }
  base::MemoryOwner owner() const { return owner_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(owner_, other.owner_);
  }

  Device* device_ = nullptr;
  std::uint64_t address_ = 0;
  std::size_t bytes_ = 0;
  base::MemoryOwner owner_ = base::MemoryOwner::kActivations;
};

inline constexpr std::int64_t kHostAlignment = 4096;

// Host memory that the device reads and writes in place: pinned on CUDA, any memory on the CPU.
// Owns it as Buffer does. Aligned to kHostAlignment, so that files can be read into it without a
// buffer between.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(Buffer buffer, std::span<std::byte> bytes, DevicePtr<std::byte> on_device)
      : buffer_(std::move(buffer)), bytes_(bytes), on_device_(on_device) {}

  std::span<std::byte> bytes() const { return bytes_; }          // for the host
  DevicePtr<std::byte> on_device() const { return on_device_; }  // the same bytes, for the device

 private:
  Buffer buffer_;
  std::span<std::byte> bytes_;
  DevicePtr<std::byte> on_device_;
};

// An ordered queue of operations on one device. Operations on different streams have no order
// except through events. Destroy only when synchronised.
class Stream {
 public:
  virtual ~Stream() = default;
};

// A point in a stream; a plain value. Ticket 0 is a point that has always been reached.
struct Event {
  std::uint64_t ticket = 0;
};

// How products are computed. kInt8, kInt16: quantised matrices keep their stored values and meet
// activations of 8 or 16 bits with a scale for each 32 (LinearParams); the others, and slices that
// cut a block, are as for kBF16 (kInt8) or kF32 (kInt16).
enum class Compute : std::uint8_t { kF32, kBF16, kInt8, kInt16 };

constexpr std::string_view name_of(Compute compute) {
  switch (compute) {
    case Compute::kF32:
      return "f32";
    case Compute::kBF16:
      return "bf16";
    case Compute::kInt8:
      return "int8";
    case Compute::kInt16:
      return "int16";
  }
  return "unknown";
}

// The size of a matrix [rows, cols] (out, in), and how it is stored: what its prepared size follows
// from.
struct MatrixShape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  // A quantised type only if whole blocks can be read (read_blocks below).
  base::DType stored = base::DType::kF32;
};

// A matrix as the loader sees it. Both functions may be called from several threads at once and
// must not fail (the reader has checked the file).
struct HostMatrix {
  MatrixShape shape;
  // Dequantises one row to `out[cols]`.
  std::function<void(std::int64_t row, std::span<float> out)> read_row;
  // The stored blocks of one row; needed where `shape.stored` is quantised.
  std::function<std::span<const std::byte>(std::int64_t row)> read_blocks;
};

// A weight matrix in the device's own layout: packed panels on the CPU, a tensor on CUDA. Opaque.
class Weight {
 public:
  virtual ~Weight() = default;
  virtual std::int64_t rows() const = 0;  // out
  virtual std::int64_t cols() const = 0;  // in
};

// Work done since the device was made; for tests and metrics.
struct DeviceCounters {
  std::int64_t linear_calls = 0;  // matrix products
  std::int64_t linear_rows =
      0;  // activation rows over all of them: rows / calls shows real batching
};

// One device of one rank. All enqueueing calls come from the rank's worker thread and its movers,
// each with streams of their own; allocate, query and counters from any thread. Operators enqueue,
// allocate nothing and return at once or later: results are there once an event recorded behind
// them is reached. Each states its shapes in operators.h. A device error is latched and returned by
// synchronize().
class Device {
 public:
  virtual ~Device() = default;

  // --- memory ---
  // Zero-filled (NaN-filled where the test options say so); at least 64-byte aligned; at least 1
  // byte. ResourceExhausted when there is not enough.
  virtual absl::StatusOr<Buffer> allocate(std::size_t bytes, base::MemoryOwner owner) = 0;
  // The same for memory of the host.
  virtual absl::StatusOr<HostBuffer> allocate_host(std::size_t bytes, base::MemoryOwner owner) = 0;
  // Sets every byte.
  virtual void fill(DevicePtr<std::byte> target, std::byte value, std::size_t bytes,
                    Stream& stream) = 0;
  // The host range must stay untouched until an event recorded behind the copy is reached: an
  // asynchronous copy reads its source when it runs, not when it is called.
  virtual void copy_to_device(std::span<const std::byte> source, DevicePtr<std::byte> target,
                              Stream& stream) = 0;
  virtual void copy_to_host(DevicePtr<const std::byte> source, std::span<std::byte> target,
                            Stream& stream) = 0;
  // Between ranges that do not overlap, in device or in host memory.
  virtual void copy(DevicePtr<const std::byte> source, DevicePtr<std::byte> target,
                    std::size_t bytes, Stream& stream) = 0;
  // Bytes now allocated, by owner: the allocator's own count, to be checked against the ledger.
  virtual base::Ledger allocated() const = 0;

  // --- order ---
  virtual std::unique_ptr<Stream> create_stream() = 0;
  virtual Event record(Stream& stream) = 0;
  virtual void wait(Stream& stream,
                    Event event) = 0;  // later work of `stream` waits; the host does not
  virtual bool query(Event event) = 0;
  virtual absl::Status synchronize(
      Event event) = 0;  // the host waits; returns the latched device error
  // Runs `work` on some thread in stream order. It may block on other streams' work, not on this
  // stream.
  virtual void enqueue_host(std::function<void()> work, Stream& stream) = 0;

  // --- weights ---
  // Copies and converts the matrix into the device's layout.
  virtual absl::StatusOr<std::unique_ptr<Weight>> prepare_weight(const HostMatrix& matrix,
                                                                 Compute compute) = 0;

  // --- operators (operators.h) ---
  virtual void embed(const EmbedParams& params, Stream& stream) = 0;
  virtual void linear(const LinearParams& params, Stream& stream) = 0;
  virtual void rope_angles(const RopeAnglesParams& params, Stream& stream) = 0;
  virtual void rope_and_store(const RopeAndStoreParams& params, Stream& stream) = 0;
  virtual void paged_attention(const PagedAttentionParams& params, Stream& stream) = 0;
  virtual void page_mass(const PageMassParams& params, Stream& stream) = 0;
  virtual void add(const AddParams& params, Stream& stream) = 0;
  virtual void gather_rows(const GatherRowsParams& params, Stream& stream) = 0;
  virtual void copy_columns(const CopyColumnsParams& params, Stream& stream) = 0;
  virtual void sum_ranks(const SumRanksParams& params, Stream& stream) = 0;
  virtual void sample(const SampleParams& params, Stream& stream) = 0;

  virtual DeviceCounters counters() const = 0;
  // The instruction-set level that decides the bits of a result ("x86-64-v2" to "x86-64-v4"): part
  // of the numerics contract and of persistent keys.
  virtual std::string isa_level() const = 0;

 protected:
  friend class Buffer;
  virtual void free(std::uint64_t address, std::size_t bytes, base::MemoryOwner owner) noexcept = 0;
};

inline Buffer::~Buffer() {
  if (device_ != nullptr) device_->free(address_, bytes_, owner_);
}

}  // namespace hisparse::device
