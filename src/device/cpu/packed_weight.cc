#include "device/cpu/packed_weight.h"

#include <string>

#include "base/status.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/cpu_memory.h"
#include "device/cpu/panel_layout.h"

namespace hisparse::device {
namespace {

std::int64_t panel_count(std::int64_t rows) {
  return (rows + cpu::kPanelColumns - 1) / cpu::kPanelColumns;
}

}  // namespace

std::int64_t cpu_weight_bytes(const MatrixShape& shape, Compute compute) {
  return panel_count(shape.rows) *
         cpu::panel_bytes(cpu::element_for(shape.stored, compute), shape.cols);
}

namespace cpu {
namespace {

// Larger sides cannot be real, and their product would not fit.
constexpr std::int64_t kMaxSide = std::int64_t{1} << 30;

absl::Status check_shape(const MatrixShape& shape) {
  const std::int64_t block = base::block_shape(shape.stored).values;
  if (shape.rows > 0 && shape.cols > 0 && shape.rows <= kMaxSide && shape.cols <= kMaxSide &&
      shape.cols % block == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("a weight cannot have the shape " + std::to_string(shape.rows) +
                                    " x " + std::to_string(shape.cols) + " in " +
                                    std::string(base::name_of(shape.stored)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Weight>> PackedWeight::pack(const HostMatrix& matrix,
                                                           Compute compute, Device& device,
                                                           base::ThreadPool& pool) {
  HS_RETURN_IF_ERROR(check_shape(matrix.shape));
  const auto bytes = static_cast<std::size_t>(cpu_weight_bytes(matrix.shape, compute));
  HS_ASSIGN_OR_RETURN(Buffer buffer, device.allocate(bytes, base::MemoryOwner::kWeights));
  const Element element = element_for(matrix.shape.stored, compute);
  std::byte* panels = pointer_to(buffer.as<std::byte>());
  const std::int64_t each = panel_bytes(element, matrix.shape.cols);
  pool.parallel_for(panel_count(matrix.shape.rows),
                    [&](std::int64_t i) { pack_panel(matrix, element, i, panels + i * each); });
  return std::unique_ptr<Weight>(
      new PackedWeight(matrix.shape, element, activation_for(element, compute), std::move(buffer)));
}

const std::byte* PackedWeight::panel(std::int64_t index) const {
  return pointer_to(buffer_.as<std::byte>()) + index * panel_bytes(element_, cols_);
}

void PackedWeight::read_row(std::int64_t row, float* out) const {
  read_column(panel(row / kPanelColumns), element_, static_cast<int>(row % kPanelColumns), cols_,
              out);
}

}  // namespace cpu
}  // namespace hisparse::device
