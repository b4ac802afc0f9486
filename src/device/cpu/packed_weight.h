// A weight matrix in panels (kernels.h).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "device/cpu/kernels.h"
#include "device/device.h"

namespace hisparse::device::cpu {

// Owns its panels in device memory; immutable once packed.
class PackedWeight final : public Weight {
 public:
  // Reads and converts every row, on all threads of the pool. InvalidArgument for an empty matrix
  // or one whose stored type does not fit its shape; ResourceExhausted when there is no room.
  static absl::StatusOr<std::unique_ptr<Weight>> pack(const HostMatrix& matrix, Compute compute,
                                                      Device& device, base::ThreadPool& pool);

  std::int64_t rows() const override { return rows_; }
  std::int64_t cols() const override { return cols_; }
  Element element() const { return element_; }
  Activation activation() const { return activation_; }  // of the rows that it is multiplied with
  std::int64_t panels() const { return (rows_ + kPanelColumns - 1) / kPanelColumns; }
  const std::byte* panel(std::int64_t index) const;
  // out[cols] = row `row`, as it is multiplied (bf16 is rounded).
  void read_row(std::int64_t row, float* out) const;

 private:
  PackedWeight(const MatrixShape& shape, Element element, Activation activation, Buffer buffer)
      : rows_(shape.rows),
        cols_(shape.cols),
        element_(element),
        activation_(activation),
        buffer_(std::move(buffer)) {}

  const std::int64_t rows_;
  const std::int64_t cols_;
  const Element element_;
  const Activation activation_;
  const Buffer buffer_;
};

}  // namespace hisparse::device::cpu
