// bf16 and IEEE half as bit patterns. Header-only and free of library calls, so that kernel files
// with their own ISA flags may include it: everything here is `static inline` on purpose (a
// function shared between ISA levels could be linked from the wrong one).
#pragma once

#include <cstdint>
#include <cstring>

namespace hisparse::base {

struct bf16 {
  std::uint16_t bits;
};
struct f16 {
  std::uint16_t bits;
};

static inline float bits_to_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

static inline std::uint32_t float_to_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static inline float to_float(bf16 value) {
  return bits_to_float(static_cast<std::uint32_t>(value.bits) << 16);
}

// Round to nearest, ties to even; NaN stays NaN (quiet).
static inline bf16 to_bf16(float value) {
  const std::uint32_t bits = float_to_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return {static_cast<std::uint16_t>((bits >> 16) | 0x0040u)};
  }
  const std::uint32_t rounding = 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<std::uint16_t>((bits + rounding) >> 16)};
}

// Exact: every half value is a float value.
static inline float to_float(f16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = value.bits & 0x3ffu;
  if (exponent == 0x1fu) return bits_to_float(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return bits_to_float(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  // Subnormal: mantissa * 2^-24.
  const float magnitude = static_cast<float>(mantissa) * (1.0f / 16777216.0f);
  return bits_to_float(sign | float_to_bits(magnitude));
}

}  // namespace hisparse::base
