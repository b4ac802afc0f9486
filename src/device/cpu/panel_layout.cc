#include "device/cpu/panel_layout.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/float_formats.h"

namespace hisparse::device::cpu {
namespace {

using base::DType;

constexpr std::size_t kHalfBytes = 2;
constexpr std::int64_t kQuadRowBytes = kPanelColumns * kQuadValues;
constexpr int kNibbleBits = 4;
constexpr int kLowNibble = 0xf;

// GGUF's Q8_0, Q4_0 and Q4_1 blocks: f16 scale, f16 minimum (Q4_1), values. Their nibbles pair
// value j with value j + 16, which is quad q with quad q + 4: the panel's order.
void place_block(const std::byte* block, Element element, int column, std::byte* group) {
  std::memcpy(group + column * kHalfBytes, block, kHalfBytes);
  block += kHalfBytes;
  if (element == Element::kInt4Min) {
    std::memcpy(group + (kPanelColumns + column) * kHalfBytes, block, kHalfBytes);
    block += kHalfBytes;
  }
  const int quads = element == Element::kInt8 ? kGroupQuads : kGroupQuads / 2;
  std::byte* out = group + group_header_bytes(element) + column * kQuadValues;
  for (int q = 0; q < quads; ++q) {
    std::memcpy(out + q * kQuadRowBytes, block + q * kQuadValues, kQuadValues);
  }
}

void pack_quantised(const HostMatrix& matrix, Element element, std::int64_t first,
                    std::byte* panel) {
  const std::int64_t groups = matrix.shape.cols / kGroupValues;
  const auto block_bytes = static_cast<std::int64_t>(base::block_shape(matrix.shape.stored).bytes);
  const int columns =
      static_cast<int>(std::min<std::int64_t>(kPanelColumns, matrix.shape.rows - first));
  if (columns < kPanelColumns) {
    std::memset(panel, 0, static_cast<std::size_t>(panel_bytes(element, matrix.shape.cols)));
  }
  for (int c = 0; c < columns; ++c) {
    const std::span<const std::byte> blocks = matrix.read_blocks(first + c);
    HS_CHECK(static_cast<std::int64_t>(blocks.size()) == groups * block_bytes);
    for (std::int64_t g = 0; g < groups; ++g) {
      place_block(blocks.data() + g * block_bytes, element, c, panel + g * group_bytes(element));
    }
  }
}

void pack_floats(const HostMatrix& matrix, Element element, std::int64_t first, std::byte* panel) {
  const std::int64_t k = matrix.shape.cols;
  const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, matrix.shape.rows - first);
  std::memset(panel, 0, static_cast<std::size_t>(panel_bytes(element, k)));
  std::vector<float> values(static_cast<std::size_t>(k));
  for (std::int64_t c = 0; c < columns; ++c) {
    matrix.read_row(first + c, values);
    for (std::int64_t i = 0; i < k; ++i) {
      const float value = values[static_cast<std::size_t>(i)];
      if (element == Element::kBF16) {
        const std::int64_t at = (i / 2 * kPanelColumns + c) * 2 + i % 2;
        reinterpret_cast<base::bf16*>(panel)[at] = base::to_bf16(value);
      } else {
        reinterpret_cast<float*>(panel)[i * kPanelColumns + c] = value;
      }
    }
  }
}

float read_half(const std::byte* from) {
  base::f16 value;
  std::memcpy(&value, from, sizeof(value));
  return base::to_float(value);
}

float minimum_of(const std::byte* group, int column) {
  return read_half(group + (kPanelColumns + column) * kHalfBytes);
}

void read_group(const std::byte* group, Element element, int column, float* out) {
  const float scale = read_half(group + column * kHalfBytes);
  const int zero = element == Element::kInt4 ? kInt4ZeroPoint : 0;
  const std::byte* values = group + group_header_bytes(element) + column * kQuadValues;
  for (int i = 0; i < kGroupValues; ++i) {
    const int quad = i / kQuadValues;
    if (element == Element::kInt8) {
      const auto q = static_cast<std::int8_t>(values[quad * kQuadRowBytes + i % kQuadValues]);
      out[i] = scale * static_cast<float>(q);
      continue;
    }
    const bool high = quad >= kGroupQuads / 2;
    const std::byte* pair = values + quad % (kGroupQuads / 2) * kQuadRowBytes + i % kQuadValues;
    const int nibble = std::to_integer<int>(*pair) >> (high ? kNibbleBits : 0) & kLowNibble;
    out[i] = scale * static_cast<float>(nibble - zero);
    if (element == Element::kInt4Min) out[i] += minimum_of(group, column);
  }
}

}  // namespace

Element element_for(DType stored, Compute compute) {
  if (compute == Compute::kF32) return Element::kF32;
  if (compute == Compute::kInt8 || compute == Compute::kInt16) {
    switch (stored) {
      case DType::kQ8_0:
        return Element::kInt8;
      case DType::kQ4_0:
        return Element::kInt4;
      case DType::kQ4_1:
        return Element::kInt4Min;
      case DType::kF32:
      case DType::kF16:
      case DType::kBF16:
        break;
    }
    // What the file keeps as floats stays as exact as the rest.
    if (compute == Compute::kInt16) return Element::kF32;
  }
  return Element::kBF16;
}

Activation activation_for(Element element, Compute compute) {
  if (is_quantised(element)) {
    return compute == Compute::kInt16 ? Activation::kInt16 : Activation::kInt8;
  }
  return element == Element::kF32 ? Activation::kF32 : Activation::kBF16;
}

void pack_panel(const HostMatrix& matrix, Element element, std::int64_t index, std::byte* panel) {
  const std::int64_t first = index * kPanelColumns;
  if (is_quantised(element)) {
    pack_quantised(matrix, element, first, panel);
  } else {
    pack_floats(matrix, element, first, panel);
  }
}

void read_column(const std::byte* panel, Element element, int column, std::int64_t k, float* out) {
  switch (element) {
    case Element::kF32:
      for (std::int64_t i = 0; i < k; ++i) {
        out[i] = reinterpret_cast<const float*>(panel)[i * kPanelColumns + column];
      }
      return;
    case Element::kBF16:
      for (std::int64_t i = 0; i < k; ++i) {
        const std::int64_t at = (i / 2 * kPanelColumns + column) * 2 + i % 2;
        out[i] = base::to_float(reinterpret_cast<const base::bf16*>(panel)[at]);
      }
      return;
    case Element::kInt8:
    case Element::kInt4:
    case Element::kInt4Min:
      for (std::int64_t i = 0; i < k; i += kGroupValues, panel += group_bytes(element)) {
        read_group(panel, element, column, out + i);
      }
      return;
  }
}

}  // namespace hisparse::device::cpu
