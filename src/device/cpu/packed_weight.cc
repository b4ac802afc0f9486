#include "device/cpu/packed_weight.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/float_formats.h"
#include "base/status.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/cpu_memory.h"

namespace hisparse::device {

std::int64_t cpu_weight_bytes(std::int64_t rows, std::int64_t cols, base::DType compute) {
  const std::int64_t panels = (rows + cpu::kPanelColumns - 1) / cpu::kPanelColumns;
  return panels * cpu::kPanelColumns * cols * base::block_shape(compute).bytes;
}

namespace cpu {
namespace {

std::int64_t element_bytes(Element element) {
  return element == Element::kBF16 ? sizeof(base::bf16) : sizeof(float);
}

// Larger sides cannot be real, and their product would not fit.
constexpr std::int64_t kMaxSide = std::int64_t{1} << 30;

absl::Status check_matrix(const HostMatrix& matrix, base::DType compute) {
  if (compute != base::DType::kF32 && compute != base::DType::kBF16) {
    return absl::InvalidArgumentError("the CPU multiplies in f32 or bf16, not in " +
                                      std::string(base::name_of(compute)));
  }
  if (matrix.rows <= 0 || matrix.cols <= 0 || matrix.rows > kMaxSide || matrix.cols > kMaxSide) {
    return absl::InvalidArgumentError("a weight cannot have the shape " +
                                      std::to_string(matrix.rows) + " x " +
                                      std::to_string(matrix.cols));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Weight>> PackedWeight::pack(const HostMatrix& matrix,
                                                           base::DType compute, Device& device,
                                                           base::ThreadPool& pool) {
  HS_RETURN_IF_ERROR(check_matrix(matrix, compute));
  const auto bytes = static_cast<std::size_t>(cpu_weight_bytes(matrix.rows, matrix.cols, compute));
  HS_ASSIGN_OR_RETURN(Buffer buffer, device.allocate(bytes, base::MemoryOwner::kWeights));
  const Element element = compute == base::DType::kBF16 ? Element::kBF16 : Element::kF32;
  std::unique_ptr<PackedWeight> weight(new PackedWeight(matrix, element, std::move(buffer)));
  pool.parallel_for(weight->panels(), [&](std::int64_t i) { weight->pack_panel(matrix, i); });
  return std::unique_ptr<Weight>(std::move(weight));
}

std::int64_t PackedWeight::panel_bytes() const {
  return kPanelColumns * cols_ * element_bytes(element_);
}

const std::byte* PackedWeight::panel(std::int64_t index) const {
  return pointer_to(buffer_.as<std::byte>()) + index * panel_bytes();
}

void PackedWeight::pack_panel(const HostMatrix& matrix, std::int64_t index) {
  const std::int64_t first = index * kPanelColumns;
  const std::int64_t count = std::min<std::int64_t>(kPanelColumns, rows_ - first);
  // Rows behind the last one stay zero.
  std::vector<float> values(static_cast<std::size_t>(kPanelColumns * cols_));
  for (std::int64_t i = 0; i < count; ++i) {
    matrix.read_row(first + i, std::span(values).subspan(static_cast<std::size_t>(i * cols_),
                                                         static_cast<std::size_t>(cols_)));
  }
  std::byte* target = pointer_to(buffer_.as<std::byte>()) + index * panel_bytes();
  for (std::int64_t k = 0; k < cols_; ++k) {
    for (std::int64_t i = 0; i < kPanelColumns; ++i) {
      const float value = values[static_cast<std::size_t>(i * cols_ + k)];
      const std::int64_t at = k * kPanelColumns + i;
      if (element_ == Element::kBF16) {
        reinterpret_cast<base::bf16*>(target)[at] = base::to_bf16(value);
      } else {
        reinterpret_cast<float*>(target)[at] = value;
      }
    }
  }
}

void PackedWeight::read_row(std::int64_t row, float* out) const {
  const std::byte* from = panel(row / kPanelColumns);
  std::int64_t at = row % kPanelColumns;
  for (std::int64_t k = 0; k < cols_; ++k, at += kPanelColumns) {
    out[k] = element_ == Element::kBF16
                 ? base::to_float(reinterpret_cast<const base::bf16*>(from)[at])
                 : reinterpret_cast<const float*>(from)[at];
  }
}

}  // namespace cpu
}  // namespace hisparse::device
