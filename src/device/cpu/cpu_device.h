// The CPU backend: RAM is the device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/isa_choice.h"
#include "base/thread_pool.h"
#include "device/device.h"

namespace hisparse::device {

// kImmediate: an operation runs on the calling thread when it is enqueued. kDeferred: operations
// wait in their streams and run, when somebody synchronises or queries, in a random order that
// respects only streams and events, so that a missing wait shows (tests).
enum class StreamMode { kImmediate, kDeferred };

// kPlain hands out addresses that are pointers; kTagged sets high bits, so that a host dereference
// faults.
enum class AddressMode { kPlain, kTagged };

// kZero, or kNaN (bytes 0xFF: a NaN in f32 and bf16), so that a read of what was never written
// shows.
enum class FreshMemory { kZero, kNaN };

using base::IsaChoice;

struct CpuDeviceOptions {
  StreamMode streams = StreamMode::kImmediate;
  AddressMode addresses = AddressMode::kPlain;
  FreshMemory fresh = FreshMemory::kZero;
  IsaChoice isa = IsaChoice::kBest;
  std::uint64_t chaos_seed = 0;  // order of deferred operations
};

// The pool is shared by all ranks of the process and must outlive the device. InvalidArgument when
// a forced ISA level is not there.
absl::StatusOr<std::unique_ptr<Device>> make_cpu_device(base::ThreadPool& pool,
                                                        const CpuDeviceOptions& options);

// Bytes that prepare_weight takes for a matrix: for the ledger, before anything is loaded.
std::int64_t cpu_weight_bytes(const MatrixShape& shape, Compute compute);

}  // namespace hisparse::device
