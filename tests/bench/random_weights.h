// Weights with random values, made fast: rows repeat after a while, which no kernel notices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/bench/harness.h"

namespace hisparse::bench {

// How a weight is stored and multiplied.
struct WeightKind {
  const char* name;
  base::DType stored;
  device::Compute compute;
  Peak peak;  // of its products
};

inline constexpr WeightKind kWeightKinds[] = {
    {"f32", base::DType::kF32, device::Compute::kF32, Peak::kF32},
    {"bf16", base::DType::kBF16, device::Compute::kBF16, Peak::kBF16},
    {"int8_q8_0", base::DType::kQ8_0, device::Compute::kInt8, Peak::kInt8},
    {"int4_q4_0", base::DType::kQ4_0, device::Compute::kInt8, Peak::kInt4},
    {"int4_q4_1", base::DType::kQ4_1, device::Compute::kInt8, Peak::kInt4},
    // Two products of eight bits for each one that counts here.
    {"int8_q8_0_int16", base::DType::kQ8_0, device::Compute::kInt16, Peak::kInt8},
    {"int4_q4_1_int16", base::DType::kQ4_1, device::Compute::kInt16, Peak::kInt4},
};

struct Matrix {
  const char* name;
  std::int64_t n = 0;  // out
  std::int64_t k = 0;  // in
};

std::unique_ptr<device::Weight> random_weight(const Machine& machine, const Matrix& matrix,
                                              const WeightKind& kind);

// As many copies as it takes for each to come from DRAM when they are used in turn; at least two.
std::vector<std::unique_ptr<device::Weight>> weight_copies(const Machine& machine,
                                                           const Matrix& matrix,
                                                           const WeightKind& kind);

std::int64_t weight_bytes(const Matrix& matrix, const WeightKind& kind);

// What must be read between two uses of the same memory, so that no cache still holds it.
inline constexpr std::int64_t kBeyondCaches = std::int64_t{256} << 20;

}  // namespace hisparse::bench
