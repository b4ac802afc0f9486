#include <algorithm>

#include "base/check.h"
#include "comm/communicator.h"
#include "comm/rendezvous.h"

namespace hisparse::comm {
namespace {

using device::DevicePtr;

// One rank of a group inside this process. A collective is one host function in the rank's stream:
// it meets the others, works on a stream of its own (so that it may wait for it), and meets them
// again. Shares the rendezvous with its peers; worker thread, but for abort and status.
class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(int rank, int size, device::Device& device,
                     std::shared_ptr<Rendezvous> rendezvous)
      : rank_(rank),
        size_(size),
        device_(device),
        rendezvous_(std::move(rendezvous)),
        own_stream_(device.create_stream()) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce_sum(DevicePtr<float> buffer, std::int64_t count,
                      device::Stream& stream) override {
    device_.enqueue_host([this, buffer, count] { reduce(buffer, count); }, stream);
  }

  void all_gather_columns(DevicePtr<const float> in, DevicePtr<float> out, std::int64_t rows,
                          std::int64_t width, device::Stream& stream) override {
    device_.enqueue_host([=, this] { gather(in, out, rows, width); }, stream);
  }

  void abort(absl::Status reason) override { rendezvous_->abort(std::move(reason)); }
  absl::Status status() const override { return rendezvous_->status(); }

 private:
  // Each rank sums one slice for all.
  void reduce(DevicePtr<float> buffer, std::int64_t count) {
    if (!rendezvous_->enter(rank_, buffer.address())) return;
    // Whole cache lines, so that ranks do not write to the same one.
    constexpr std::int64_t kLineFloats = 16;
    const std::int64_t lines = (count + kLineFloats - 1) / kLineFloats;
    device::SumRanksParams params;
    params.ranks = size_;
    params.begin = std::min(count, lines * rank_ / size_ * kLineFloats);
    params.end = std::min(count, lines * (rank_ + 1) / size_ * kLineFloats);
    for (int r = 0; r < size_; ++r) params.buffers[r] = DevicePtr<float>(rendezvous_->address(r));
    if (params.begin < params.end) device_.sum_ranks(params, *own_stream_);
    finish();
  }

  void gather(DevicePtr<const float> in, DevicePtr<float> out, std::int64_t rows,
              std::int64_t width) {
    if (!rendezvous_->enter(rank_, in.address())) return;
    for (int r = 0; r < size_; ++r) {
      device_.copy_columns({.in = DevicePtr<const float>(rendezvous_->address(r)),
                            .out = out,
                            .rows = rows,
                            .width = width,
                            .out_width = width * size_,
                            .first_column = width * r},
                           *own_stream_);
    }
    finish();
  }

  void finish() {
    const absl::Status status = device_.synchronize(device_.record(*own_stream_));
    if (!status.ok()) rendezvous_->abort(status);
    rendezvous_->leave();
  }

  const int rank_;
  const int size_;
  device::Device& device_;
  const std::shared_ptr<Rendezvous> rendezvous_;
  const std::unique_ptr<device::Stream> own_stream_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    const std::vector<device::Device*>& devices) {
  const int size = static_cast<int>(devices.size());
  HS_CHECK(size >= 1 && size <= device::kMaxRanks);
  auto rendezvous = std::make_shared<Rendezvous>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int r = 0; r < size; ++r) {
    ranks.push_back(std::make_unique<ThreadCommunicator>(
        r, size, *devices[static_cast<std::size_t>(r)], rendezvous));
  }
  return ranks;
}

}  // namespace hisparse::comm
