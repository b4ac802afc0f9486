// Element types of tensors in files, weights and KV rows.
#pragma once

#include <cstdint>
#include <string_view>

namespace hisparse::base {

enum class DType : std::uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1 };

// Values per storage block and bytes per block. Plain types have one value a block.
// Layouts of the quantised blocks: reference/models.md section 3.2 (little-endian, f16 scales).
struct BlockShape {
  int values;
  int bytes;
};

constexpr BlockShape block_shape(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {1, 4};
    case DType::kF16:
      return {1, 2};
    case DType::kBF16:
      return {1, 2};
    case DType::kQ8_0:
      return {32, 34};
    case DType::kQ4_0:
      return {32, 18};
    case DType::kQ4_1:
      return {32, 20};
  }
  return {1, 0};
}

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kQ8_0:
      return "q8_0";
    case DType::kQ4_0:
      return "q4_0";
    case DType::kQ4_1:
      return "q4_1";
  }
  return "unknown";
}

}  // namespace hisparse::base
