// Collectives between the ranks of one tensor-parallel group.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "device/device.h"

namespace hisparse::comm {

// One per rank. Calls enqueue on the rank's stream and come from its worker thread; all ranks must
// make the same calls in the same order. Sums have a fixed order (rank 0, 1, ...) and give the same
// bits on every rank, so replicated computation stays identical.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place on each rank's buffer [count].
  virtual void all_reduce_sum(device::DevicePtr<float> buffer, std::int64_t count,
                              device::Stream& stream) = 0;
  // out[:, r * width ... (r + 1) * width) = in of rank r; `in` is [rows, width], `out` [rows, width
  // * size].
  virtual void all_gather_columns(device::DevicePtr<const float> in, device::DevicePtr<float> out,
                                  std::int64_t rows, std::int64_t width,
                                  device::Stream& stream) = 0;

  // Makes every collective in flight or to come return without effect, on all ranks; status() then
  // tells why. Any thread. For a rank that failed, so that the others do not wait for ever.
  virtual void abort(absl::Status reason) = 0;
  virtual absl::Status status() const = 0;
};

// A group of one: a sum is already there. A gather copies with `device`; without one, `in` must be
// `out`. The device must outlive the communicator.
std::unique_ptr<Communicator> make_solo_communicator(device::Device* device = nullptr);

// One communicator per entry of `devices`, for ranks that live in this process, over any backend
// whose devices can reach each other's memory. The devices must outlive the communicators.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    const std::vector<device::Device*>& devices);

}  // namespace hisparse::comm
