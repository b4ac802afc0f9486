#include <mutex>

#include "base/check.h"
#include "comm/communicator.h"

namespace hisparse::comm {
namespace {

// A group of one rank. A sum over one rank is the buffer itself.
class SoloCommunicator final : public Communicator {
 public:
  explicit SoloCommunicator(device::Device* device) : device_(device) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce_sum(device::DevicePtr<float>, std::int64_t, device::Stream&) override {}

  void all_gather_columns(device::DevicePtr<const float> in, device::DevicePtr<float> out,
                          std::int64_t rows, std::int64_t width, device::Stream& stream) override {
    if (in.address() == out.address() || !status().ok()) return;
    HS_CHECK(device_ != nullptr && "a gather into another buffer needs a device");
    device_->copy_columns({.in = in, .out = out, .rows = rows, .width = width, .out_width = width},
                          stream);
  }

  void abort(absl::Status reason) override {
    std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(reason);
  }
  absl::Status status() const override {
    std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  device::Device* const device_;
  mutable std::mutex mutex_;
  absl::Status status_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<Communicator> make_solo_communicator(device::Device* device) {
  return std::make_unique<SoloCommunicator>(device);
}

}  // namespace hisparse::comm
