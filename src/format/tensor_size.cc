#include "format/tensor_size.h"

namespace hisparse::format {

std::optional<std::uint64_t> stored_bytes(base::DType dtype, std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(count, dimension, &count)) return std::nullopt;
  }
  const base::BlockShape block = base::block_shape(dtype);
  const std::int64_t row = shape.empty() ? 1 : shape.back();
  if (row % block.values != 0) return std::nullopt;
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(count / block.values, block.bytes, &bytes)) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace hisparse::format
