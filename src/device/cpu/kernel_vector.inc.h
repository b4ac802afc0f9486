// Eight floats and what the kernels do with them. For kernels_v*.cc only, inside their anonymous
// namespace: no include guard clash, no shared symbol. Vectors are passed by reference, since
// passing them by value has no stable ABI across instruction-set levels.
// The compiler splits an F8 in two where the machine has 16-byte registers only; the lanes, and so
// the bits of a sum, stay those of eight.

typedef float F8 __attribute__((vector_size(32)));
typedef float F4 __attribute__((vector_size(16)));
typedef std::int32_t I8 __attribute__((vector_size(32)));
typedef std::uint32_t U8 __attribute__((vector_size(32)));
typedef std::uint16_t H8 __attribute__((vector_size(16)));
constexpr int kLanes = 8;

inline void load(F8& out, const float* in) { std::memcpy(&out, in, sizeof(out)); }

inline void load(F8& out, const std::uint16_t* in) {
  H8 half;
  std::memcpy(&half, in, sizeof(half));
  const U8 wide = __builtin_convertvector(half, U8) << 16;
  std::memcpy(&out, &wide, sizeof(out));
}

// The first `valid` (1 to 7) values, zeros behind them: what lies behind is never read.
template <typename T>
inline void load_partial(F8& out, const T* in, std::int64_t valid) {
  T values[kLanes] = {};
  for (std::int64_t i = 0; i < valid; ++i) values[i] = in[i];
  load(out, values);
}

inline void store(float* out, const F8& in) { std::memcpy(out, &in, sizeof(in)); }

inline void store_partial(float* out, const F8& in, std::int64_t valid) {
  float values[kLanes];
  store(values, in);
  for (std::int64_t i = 0; i < valid; ++i) out[i] = values[i];
}

inline void splat(F8& out, float value) {
  out = F8{value, value, value, value, value, value, value, value};
}

// The largest value; NaN does not count.
inline void max_lanes(F8& max, const F8& x) { max = x > max ? x : max; }

inline float largest_lane(const F8& in) {
  float max = in[0];
  for (int i = 1; i < kLanes; ++i) max = in[i] > max ? in[i] : max;
  return max;
}

// One fixed tree over the lanes.
inline float sum_lanes(const F8& in) {
  return ((in[0] + in[4]) + (in[2] + in[6])) + ((in[1] + in[5]) + (in[3] + in[7]));
}

// The same tree for four vectors at a time.
inline void sum_lanes_of_four(const F8 (&sums)[4], F4& out) {
  F4 halves[4];
  for (int j = 0; j < 4; ++j) {
    halves[j] = __builtin_shufflevector(sums[j], sums[j], 0, 1, 2, 3) +
                __builtin_shufflevector(sums[j], sums[j], 4, 5, 6, 7);
  }
  F4 quarters[2];
  for (int j = 0; j < 2; ++j) {
    const F4& a = halves[2 * j];
    const F4& b = halves[2 * j + 1];
    quarters[j] =
        __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
  }
  out = __builtin_shufflevector(quarters[0], quarters[1], 0, 2, 4, 6) +
        __builtin_shufflevector(quarters[0], quarters[1], 1, 3, 5, 7);
}

// x = exp(x) to about 1 ulp; 0 below kLowest, infinity above kHighest; NaN stays NaN, so that
// poison shows. Own code and not libm's, so that the bits do not change with the C library.
//   exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln(2) / 2, Taylor series to degree 7.
inline void exp8(F8& x) {
  constexpr float kLowest = -87.3f;
  constexpr float kHighest = 88.3f;
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // exact in 9 bits: n * kLn2High has no rounding
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23: the sum's last bit is a one
  constexpr std::int32_t kShiftBits = 0x4B400000;
  constexpr std::int32_t kExponentBias = 127;
  constexpr int kMantissaBits = 23;
  F8 lowest, highest;
  splat(lowest, kLowest);
  splat(highest, kHighest);
  const I8 underflow = x < lowest;
  const I8 overflow = x > highest;
  F8 clamped = underflow ? lowest : x;
  clamped = overflow ? highest : clamped;
  const F8 shifted = clamped * kLog2E + kRoundingShift;
  const F8 n = shifted - kRoundingShift;
  F8 r = clamped - n * kLn2High;
  r = r - n * kLn2Low;
  F8 p = r * (1.0f / 5040.0f) + (1.0f / 720.0f);
  p = p * r + (1.0f / 120.0f);
  p = p * r + (1.0f / 24.0f);
  p = p * r + (1.0f / 6.0f);
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  I8 exponent;
  std::memcpy(&exponent, &shifted, sizeof(exponent));
  const U8 power = __builtin_convertvector(exponent - kShiftBits + kExponentBias, U8)
                   << kMantissaBits;
  F8 scale;
  std::memcpy(&scale, &power, sizeof(scale));
  const F8 zero = {};
  F8 infinity;
  splat(infinity, __builtin_inff());
  x = underflow ? zero : p * scale;
  x = overflow ? infinity : x;
}

inline float exp1(float x) {
  F8 lanes;
  splat(lanes, x);
  exp8(lanes);
  return lanes[0];
}
