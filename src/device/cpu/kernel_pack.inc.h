// Rows into tiles, in the form in which they meet a weight.
//   kF32, kBF16  [k][rows] f32 (values rounded to bf16 for kBF16); one zero behind an odd k
//   kBF16 on AVX-512  [k / 2, rounded up][rows][2] bf16
//   kInt8        for each group of 32: int8 [8][rows][4]; f32 scales[rows]; f32 scale * sum(q)
//                [rows]; int32 sum(q) [rows]
//   kInt16       the same with [8][rows][2][4], the high plane and the low plane, and int32 sums of
//                the planes [rows][2]

inline void pack_f32(const RowTile& tile) {
  float* out = static_cast<float*>(tile.out);
  for (std::int64_t r = 0; r < tile.count; ++r) {
    for (std::int64_t i = 0; i < tile.k; ++i) out[i * tile.count + r] = tile.rows[r][i];
    if (tile.k % 2 != 0) out[tile.k * tile.count + r] = 0.0f;
  }
}

#if defined(HISPARSE_AVX512)
inline void pack_bf16(const RowTile& tile) {
  auto* out = static_cast<std::uint16_t*>(tile.out);
  for (std::int64_t r = 0; r < tile.count; ++r) {
    for (std::int64_t i = 0; i < tile.k; ++i) {
      out[(i / 2 * tile.count + r) * 2 + i % 2] = base::to_bf16(tile.rows[r][i]).bits;
    }
    if (tile.k % 2 != 0) out[(tile.k / 2 * tile.count + r) * 2 + 1] = 0;
  }
}
#else
inline void pack_bf16(const RowTile& tile) {
  float* out = static_cast<float*>(tile.out);
  for (std::int64_t r = 0; r < tile.count; ++r) {
    for (std::int64_t i = 0; i < tile.k; ++i) {
      out[i * tile.count + r] = base::to_float(base::to_bf16(tile.rows[r][i]));
    }
    if (tile.k % 2 != 0) out[tile.k * tile.count + r] = 0.0f;
  }
}
#endif

constexpr int kGroupVectors = kGroupValues / kLanes;

inline float largest_magnitude(const F8 (&x)[kGroupVectors]) {
  F8 max = {};
  for (int i = 0; i < kGroupVectors; ++i) {
    max_lanes(max, x[i]);
    const F8 negative = -x[i];
    max_lanes(max, negative);
  }
  return largest_lane(max);
}

// Zero for finite values, else NaN.
inline float taint_of(const F8 (&x)[kGroupVectors]) {
  F8 sum = {};
  for (int i = 0; i < kGroupVectors; ++i) sum += x[i] * 0.0f;
  return sum_lanes(sum);
}

// x = round(x), ties to even; |x| at most 2^22.
inline void round_lanes(F8& x, I8& rounded) {
  constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23
  constexpr std::int32_t kShiftBits = 0x4B400000;
  const F8 shifted = x + kRoundingShift;
  std::memcpy(&rounded, &shifted, sizeof(rounded));
  rounded -= kShiftBits;
  x = shifted - kRoundingShift;
}

// Two quads, `stride` bytes apart.
inline void store_quads(std::int8_t* out, std::int64_t stride, const I8& values) {
  typedef std::int8_t Bytes __attribute__((vector_size(kLanes)));
  const Bytes bytes = __builtin_convertvector(values, Bytes);
  std::int8_t quads[kLanes];
  std::memcpy(quads, &bytes, sizeof(quads));
  std::memcpy(out, quads, kQuadValues);
  std::memcpy(out + stride, quads + kQuadValues, kQuadValues);
}

inline std::int32_t sum_of(const I8& lanes) {
  std::int32_t total = 0;
  for (int i = 0; i < kLanes; ++i) total += lanes[i];
  return total;
}

// Writes the group's values to out[quad * stride], for two planes side by side; sums up each plane.
template <int kPlanes>
inline void quantise_group(const F8 (&x)[kGroupVectors], float inverse, std::int8_t* out,
                           std::int64_t stride, std::int32_t (&sums)[kPlanes]) {
  I8 sum = {}, high_sum = {};
  for (int i = 0; i < kGroupVectors; ++i, out += 2 * stride) {
    F8 scaled = x[i] * inverse;
    I8 q;
    round_lanes(scaled, q);
    sum += q;
    if constexpr (kPlanes == 2) {
      I8 high;
      F8 quotient = scaled * (1.0f / kPlaneBase);
      round_lanes(quotient, high);
      high_sum += high;
      store_quads(out, stride, high);
      store_quads(out + kQuadValues, stride, q - high * kPlaneBase);
    } else {
      store_quads(out, stride, q);
    }
  }
  sums[0] = sum_of(sum);
  if constexpr (kPlanes == 2) {
    const std::int32_t high_total = sum_of(high_sum);
    sums[1] = sums[0] - high_total * kPlaneBase;
    sums[0] = high_total;
  }
}

// The scale of a group, and what turns its values into integers.
struct GroupScale {
  float scale = 0.0f;
  float inverse = 0.0f;
};

// A group with a value that is not finite has a scale that is NaN and counts as zeros, as does one
// whose values are so small that the inverse would not be finite.
template <int kPlanes>
inline void scale_group(F8 (&x)[kGroupVectors], GroupScale& group) {
  constexpr float kLargest = kPlanes == 2 ? kPlaneBase * 127 + 126 : 127;
  constexpr float kSmallest = 1e-30f;
  const float max = largest_magnitude(x);
  const float taint = taint_of(x);
  if (max >= kSmallest && taint == 0.0f) {
    group.scale = max / kLargest;
    group.inverse = 1.0f / group.scale;
    return;
  }
  group.scale = taint;
  group.inverse = 0.0f;
  for (int i = 0; i < kGroupVectors; ++i) x[i] = F8{};
}

template <int kPlanes>
inline void pack_integers(const RowTile& tile) {
  const std::int64_t count = tile.count;
  const std::int64_t stride = count * kPlanes * kQuadValues;
  const std::int64_t bytes = count * packed_row_bytes(tile.activation, kGroupValues);
  for (std::int64_t r = 0; r < count; ++r) {
    auto* out = static_cast<std::int8_t*>(tile.out);
    for (std::int64_t i = 0; i < tile.k; i += kGroupValues, out += bytes) {
      F8 x[kGroupVectors];
      for (int v = 0; v < kGroupVectors; ++v) load(x[v], tile.rows[r] + i + v * kLanes);
      GroupScale group;
      scale_group<kPlanes>(x, group);
      std::int32_t sums[kPlanes];
      quantise_group<kPlanes>(x, group.inverse, out + r * kPlanes * kQuadValues, stride, sums);
      const std::int32_t sum = kPlanes == 2 ? sums[0] * kPlaneBase + sums[kPlanes - 1] : sums[0];
      const float scaled_sum = group.scale * static_cast<float>(sum);
      std::int8_t* header = out + kGroupQuads * stride;
      std::memcpy(header + (2 * count + r * kPlanes) * sizeof(float), sums, sizeof(sums));
      std::memcpy(header + r * sizeof(float), &group.scale, sizeof(float));
      std::memcpy(header + (count + r) * sizeof(float), &scaled_sum, sizeof(float));
    }
  }
}

void pack_rows(const RowTile& tile) {
  switch (tile.activation) {
    case Activation::kF32:
      return pack_f32(tile);
    case Activation::kBF16:
      return pack_bf16(tile);
    case Activation::kInt8:
      return pack_integers<1>(tile);
    case Activation::kInt16:
      return pack_integers<2>(tile);
  }
}
