// Rows into tiles, in the form in which they meet a weight.
//   kF32, kBF16  [k][rows] f32 (values rounded to bf16 for kBF16); one zero behind an odd k
//   kBF16 on AVX-512  [k / 2, rounded up][rows][2] bf16
//   kInt8        for each group of 32: int8 [8][rows][4]; f32 scales[rows]; f32 scale * sum(q)
//                [rows]; int32 sum(q) [rows]
//   kInt16       the same with [8][rows][2][4], the high plane and the low plane, and int32 sums of
//                the planes [rows][2]

// Four rows are turned at a time, eight 32-bit values of each: out[i] is value i of all four.
constexpr int kTurnedRows = 4;

inline void turn_rows(const I8 (&rows)[kTurnedRows], I4 (&out)[kLanes]) {
  for (int half = 0; half < 2; ++half) {
    // Values 0, 1 (then 2, 3) of two rows side by side, and 4, 5 (then 6, 7) in the upper half.
    I8 pairs[2];
    for (int i = 0; i < 2; ++i) {
      const I8& a = rows[2 * i];
      const I8& b = rows[2 * i + 1];
      pairs[i] = half == 0 ? __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
                           : __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    }
    const I8 even = __builtin_shufflevector(pairs[0], pairs[1], 0, 1, 8, 9, 4, 5, 12, 13);
    const I8 odd = __builtin_shufflevector(pairs[0], pairs[1], 2, 3, 10, 11, 6, 7, 14, 15);
    out[2 * half] = __builtin_shufflevector(even, even, 0, 1, 2, 3);
    out[2 * half + 1] = __builtin_shufflevector(odd, odd, 0, 1, 2, 3);
    out[2 * half + 4] = __builtin_shufflevector(even, even, 4, 5, 6, 7);
    out[2 * half + 5] = __builtin_shufflevector(odd, odd, 4, 5, 6, 7);
  }
}

// base::to_bf16 of each lane.
inline void round_to_bf16(U8& bits) {
  const U8 upper = bits >> 16;
  const U8 rounded = (bits + (upper & 1u) + 0x7fffu) >> 16;
  bits = (bits & 0x7fffffffu) > 0x7f800000u ? (upper | 0x0040u) : rounded;
}

// The 32-bit steps that rows of floats become, kValues neighbours of k in each.
struct F32Steps {
  static constexpr int kValues = 1;
  static constexpr std::int64_t count(std::int64_t k) { return (k + 1) / 2 * 2; }
  static inline void load_steps(I8& out, const float* in) { std::memcpy(&out, in, sizeof(out)); }
};

#if defined(HISPARSE_AVX512)
struct BF16Steps {
  static constexpr int kValues = 2;
  static constexpr std::int64_t count(std::int64_t k) { return (k + 1) / 2; }
  static inline void load_steps(I8& out, const float* in) {
    U8 halves[2];
    std::memcpy(halves, in, sizeof(halves));
    for (U8& half : halves) round_to_bf16(half);
    const U8 even = __builtin_shufflevector(halves[0], halves[1], 0, 2, 4, 6, 8, 10, 12, 14);
    const U8 odd = __builtin_shufflevector(halves[0], halves[1], 1, 3, 5, 7, 9, 11, 13, 15);
    const U8 pairs = even | odd << 16;
    std::memcpy(&out, &pairs, sizeof(out));
  }
};
#else
struct BF16Steps {
  static constexpr int kValues = 1;
  static constexpr std::int64_t count(std::int64_t k) { return (k + 1) / 2 * 2; }
  static inline void load_steps(I8& out, const float* in) {
    U8 bits;
    std::memcpy(&bits, in, sizeof(bits));
    round_to_bf16(bits);
    bits <<= 16;
    std::memcpy(&out, &bits, sizeof(out));
  }
};
#endif

// What follows the first `valid` values counts as zeros and is not read.
template <typename Steps>
inline void load_steps(I8& out, const float* in, std::int64_t valid) {
  constexpr std::int64_t kRead = kLanes * Steps::kValues;
  if (valid >= kRead) return Steps::load_steps(out, in);
  float values[kRead] = {};
  for (std::int64_t i = 0; i < valid; ++i) values[i] = in[i];
  Steps::load_steps(out, values);
}

// Eight steps of all rows to `out`, and up to three values more behind those of several rows.
template <typename Steps>
inline void turn_steps(const RowTile& tile, std::int64_t step, std::int32_t* out) {
  const std::int64_t at = step * Steps::kValues;
  if (tile.count == 1) {
    I8 row;
    load_steps<Steps>(row, tile.rows[0] + at, tile.k - at);
    std::memcpy(out, &row, sizeof(row));
    return;
  }
  I4 turned[2][kLanes];
  for (int half = 0; half * kTurnedRows < tile.count; ++half) {
    I8 rows[kTurnedRows];
    for (int i = 0; i < kTurnedRows; ++i) {
      // A narrow tile takes its first row again: what that gives is overwritten.
      const int row = half * kTurnedRows + i;
      load_steps<Steps>(rows[i], tile.rows[row < tile.count ? row : 0] + at, tile.k - at);
    }
    turn_rows(rows, turned[half]);
  }
  for (int i = 0; i < kLanes; ++i, out += tile.count) {
    std::memcpy(out, &turned[0][i], sizeof(I4));
    if (tile.count > kTurnedRows) std::memcpy(out + kTurnedRows, &turned[1][i], sizeof(I4));
  }
}

template <typename Steps>
inline void pack_steps(const RowTile& tile) {
  auto* out = static_cast<std::int32_t*>(tile.out);
  const std::int64_t steps = Steps::count(tile.k);
  std::int64_t step = 0;
  for (; step + kLanes < steps; step += kLanes) {
    turn_steps<Steps>(tile, step, out + step * tile.count);
  }
  // Behind the last steps lies another tile.
  std::int32_t last[2 * kTurnedRows * kLanes];
  turn_steps<Steps>(tile, step, last);
  std::memcpy(out + step * tile.count, last, (steps - step) * tile.count * sizeof(*last));
}

constexpr int kGroupVectors = kGroupValues / kLanes;

// x = round(x), ties to even; |x| at most 2^22.
inline void round_lanes(F8& x, I8& rounded) {
  constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23
  constexpr std::int32_t kShiftBits = 0x4B400000;
  const F8 shifted = x + kRoundingShift;
  std::memcpy(&rounded, &shifted, sizeof(rounded));
  rounded -= kShiftBits;
  x = shifted - kRoundingShift;
}

// One row's values of a group.
typedef F8 GroupRow[kGroupVectors];

// The scales of a group of up to four rows, and what turns their values into integers.
struct GroupScales {
  F4 scale;
  F4 inverse;
};

inline void max_lanes_of_four(const F8 (&rows)[kTurnedRows], F4& out) {
  I8 bits[kTurnedRows];
  std::memcpy(bits, rows, sizeof(bits));
  I4 turned[kLanes];
  turn_rows(bits, turned);
  out = F4{};
  for (const I4& lane : turned) {
    F4 x;
    std::memcpy(&x, &lane, sizeof(x));
    out = x > out ? x : out;
  }
}

// Integers: any order gives the same sum.
inline void sum_lanes_of_four(const I8 (&rows)[kTurnedRows], I4& out) {
  I4 turned[kLanes];
  turn_rows(rows, turned);
  out = I4{};
  for (const I4& lane : turned) out += lane;
}

// A group with a value that is not finite has a scale that is NaN and counts as zeros, as does one
// whose values are so small that the inverse would not be finite.
template <int kPlanes, int kRows>
inline void scale_group(GroupRow (&x)[kRows], GroupScales& group) {
  constexpr float kLargest = kPlanes == 2 ? kPlaneBase * 127 + 126 : 127;
  constexpr float kSmallest = 1e-30f;
  F8 magnitudes[kTurnedRows] = {};
  F8 taints[kTurnedRows] = {};  // sums of zeros for finite values, else of NaN too
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kGroupVectors; ++v) {
      max_lanes(magnitudes[r], x[r][v]);
      const F8 negative = -x[r][v];
      max_lanes(magnitudes[r], negative);
      taints[r] += x[r][v] * 0.0f;
    }
  }
  F4 max, taint;
  max_lanes_of_four(magnitudes, max);
  sum_lanes_of_four(taints, taint);
  const I4 usable = (max >= kSmallest) & (taint == 0.0f);
  const F4 scale = max / kLargest;
  const F4 inverse = 1.0f / scale;
  group.scale = usable ? scale : taint;
  group.inverse = usable ? inverse : F4{};
  for (int r = 0; r < kRows; ++r) {
    if (usable[r] != 0) continue;
    for (F8& values : x[r]) values = F8{};
  }
}

// The lowest bytes of 32 integers, as eight quads.
inline void narrow(const I8 (&in)[kGroupVectors], I8& quads) {
  typedef std::int8_t Bytes __attribute__((vector_size(kLanes)));
  typedef std::int8_t Bytes16 __attribute__((vector_size(2 * kLanes)));
  typedef std::int8_t Bytes32 __attribute__((vector_size(4 * kLanes)));
  Bytes16 halves[2];
  for (int i = 0; i < 2; ++i) {
    const Bytes a = __builtin_convertvector(in[2 * i], Bytes);
    const Bytes b = __builtin_convertvector(in[2 * i + 1], Bytes);
    halves[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  const Bytes32 bytes = __builtin_shufflevector(halves[0], halves[1], 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
                                                10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
                                                23, 24, 25, 26, 27, 28, 29, 30, 31);
  std::memcpy(&quads, &bytes, sizeof(quads));
}

// The quads of each plane of one row, and their sums in lanes.
template <int kPlanes>
inline void quantise_row(const GroupRow& x, float inverse, I8* quads, I8* sums) {
  I8 planes[kPlanes][kGroupVectors];
  for (int v = 0; v < kGroupVectors; ++v) {
    F8 scaled = x[v] * inverse;
    I8& low = planes[kPlanes - 1][v];
    round_lanes(scaled, low);
    if constexpr (kPlanes == 2) {
      F8 quotient = scaled * (1.0f / kPlaneBase);
      round_lanes(quotient, planes[0][v]);
      low -= planes[0][v] * kPlaneBase;
    }
  }
  for (int p = 0; p < kPlanes; ++p) {
    narrow(planes[p], quads[p]);
    sums[p] = (planes[p][0] + planes[p][1]) + (planes[p][2] + planes[p][3]);
  }
}

// What belongs to the values of a group of row `r` of `count`.
template <int kPlanes>
inline void write_scales(float scale, const std::int32_t (&sums)[kPlanes], int count, int r,
                         std::int8_t* out) {
  std::int32_t sum = sums[0];
  if constexpr (kPlanes == 2) sum = sum * kPlaneBase + sums[1];
  const float scaled_sum = scale * static_cast<float>(sum);
  std::memcpy(out + r * sizeof(float), &scale, sizeof(float));
  std::memcpy(out + (count + r) * sizeof(float), &scaled_sum, sizeof(float));
  std::memcpy(out + (2 * count + r * kPlanes) * sizeof(float), sums, sizeof(sums));
}

// Writes the group's values and what belongs to them: of `count` rows, at most kRows.
template <int kPlanes, int kRows>
inline void pack_group(GroupRow (&x)[kRows], int count, std::int8_t* out) {
  GroupScales group;
  scale_group<kPlanes>(x, group);
  I8 quads[kTurnedRows] = {};
  I8 sums_in_lanes[kTurnedRows] = {};
  for (int r = 0; r < kRows; ++r) {
    quantise_row<kPlanes>(x[r], group.inverse[r], quads + r * kPlanes, sums_in_lanes + r * kPlanes);
  }
  // Too much behind a narrow tile, which is overwritten by the next quad and then by the scales.
  I4 turned[kLanes];
  turn_rows(quads, turned);
  for (const I4& quad : turned) {
    std::memcpy(out, &quad, sizeof(quad));
    out += count * kPlanes * kQuadValues;
  }
  I4 sums;
  sum_lanes_of_four(sums_in_lanes, sums);
  for (int r = 0; r < count; ++r) {
    std::int32_t own[kPlanes];
    for (int p = 0; p < kPlanes; ++p) own[p] = sums[r * kPlanes + p];
    write_scales<kPlanes>(group.scale[r], own, count, r, out);
  }
}

// The values of one row's group.
template <int kPlanes>
inline void write_quads(const I8 (&quads)[kPlanes], std::int8_t* out) {
  if constexpr (kPlanes == 2) {
    const I8 pairs[2] = {__builtin_shufflevector(quads[0], quads[1], 0, 8, 1, 9, 2, 10, 3, 11),
                         __builtin_shufflevector(quads[0], quads[1], 4, 12, 5, 13, 6, 14, 7, 15)};
    std::memcpy(out, pairs, sizeof(pairs));
  } else {
    std::memcpy(out, quads, sizeof(quads));
  }
}

// A single row, which is packed while all threads wait: four groups at a time take the place of
// four rows.
template <int kPlanes>
inline void pack_one_row(const RowTile& tile) {
  constexpr std::int64_t kBytes =
      packed_row_bytes(kPlanes == 2 ? Activation::kInt16 : Activation::kInt8, kGroupValues);
  auto* out = static_cast<std::int8_t*>(tile.out);
  const std::int64_t groups = tile.k / kGroupValues;
  for (std::int64_t first = 0; first < groups; first += kTurnedRows) {
    const std::int64_t left = groups - first;
    const int count = left < kTurnedRows ? static_cast<int>(left) : kTurnedRows;
    GroupRow x[kTurnedRows] = {};
    for (int g = 0; g < count; ++g) {
      const float* values = tile.rows[0] + (first + g) * kGroupValues;
      for (int v = 0; v < kGroupVectors; ++v) load(x[g][v], values + v * kLanes);
    }
    GroupScales scales;
    scale_group<kPlanes>(x, scales);
    I8 quads[kTurnedRows][kPlanes];
    I8 sums_in_lanes[kPlanes][kTurnedRows];
    for (int g = 0; g < kTurnedRows; ++g) {
      I8 own[kPlanes];
      quantise_row<kPlanes>(x[g], scales.inverse[g], quads[g], own);
      for (int p = 0; p < kPlanes; ++p) sums_in_lanes[p][g] = own[p];
    }
    I4 sums[kPlanes];
    for (int p = 0; p < kPlanes; ++p) sum_lanes_of_four(sums_in_lanes[p], sums[p]);
    for (int g = 0; g < count; ++g, out += kBytes) {
      std::int32_t own[kPlanes];
      for (int p = 0; p < kPlanes; ++p) own[p] = sums[p][g];
      write_quads<kPlanes>(quads[g], out);
      write_scales<kPlanes>(scales.scale[g], own, 1, 0, out + kPlanes * kGroupValues);
    }
  }
}

template <int kPlanes, int kRows>
inline void pack_groups(const RowTile& tile) {
  auto* out = static_cast<std::int8_t*>(tile.out);
  for (std::int64_t i = 0; i < tile.k; i += kGroupValues) {
    GroupRow x[kRows];
    for (int r = 0; r < kRows; ++r) {
      const float* row = tile.rows[r < tile.count ? r : 0] + i;
      for (int v = 0; v < kGroupVectors; ++v) load(x[r][v], row + v * kLanes);
    }
    pack_group<kPlanes>(x, tile.count, out);
    out += tile.count * packed_row_bytes(tile.activation, kGroupValues);
  }
}

template <int kPlanes>
inline void pack_integers(const RowTile& tile) {
  if (tile.count == 1) return pack_one_row<kPlanes>(tile);
  pack_groups<kPlanes, kIntTileRows / kPlanes>(tile);
}

void pack_rows(const RowTile& tile) {
  switch (tile.activation) {
    case Activation::kF32:
      return pack_steps<F32Steps>(tile);
    case Activation::kBF16:
      return pack_steps<BF16Steps>(tile);
    case Activation::kInt8:
      return pack_integers<1>(tile);
    case Activation::kInt16:
      return pack_integers<2>(tile);
  }
}
