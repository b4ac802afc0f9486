// Eight floats and what the kernels do with them. For kernels_v*.cc only, inside their anonymous
// namespace: no include guard clash, no shared symbol. Vectors are passed by reference, since
// passing them by value has no stable ABI across instruction-set levels.
// The compiler splits an F8 in two where the machine has 16-byte registers only; the lanes, and so
// the bits of a sum, stay those of eight. Attention and what has no sums take Wide vectors: sixteen
// floats with AVX-512, else the same eight.

typedef float F8 __attribute__((vector_size(32)));
typedef float F4 __attribute__((vector_size(16)));
typedef std::int32_t I4 __attribute__((vector_size(16)));
typedef std::int32_t I8 __attribute__((vector_size(32)));
typedef std::uint32_t U8 __attribute__((vector_size(32)));
typedef std::uint16_t H8 __attribute__((vector_size(16)));
constexpr int kLanes = 8;
constexpr int kLineBytes = 64;  // of a cache line

#if defined(HISPARSE_AVX512)
typedef float F16 __attribute__((vector_size(64)));
typedef std::int32_t I16 __attribute__((vector_size(64)));
typedef std::uint32_t U16 __attribute__((vector_size(64)));
typedef std::uint16_t H16 __attribute__((vector_size(32)));
typedef F16 Wide;
#else
typedef F8 Wide;
#endif
constexpr int kWideLanes = sizeof(Wide) / sizeof(float);

inline void load(F8& out, const float* in) { std::memcpy(&out, in, sizeof(out)); }

inline void load(F8& out, const std::uint16_t* in) {
  H8 half;
  std::memcpy(&half, in, sizeof(half));
  const U8 wide = __builtin_convertvector(half, U8) << 16;
  std::memcpy(&out, &wide, sizeof(out));
}

inline void store(float* out, const F8& in) { std::memcpy(out, &in, sizeof(in)); }

#if defined(HISPARSE_AVX512)
inline void load(F16& out, const float* in) { std::memcpy(&out, in, sizeof(out)); }

inline void load(F16& out, const std::uint16_t* in) {
  H16 half;
  std::memcpy(&half, in, sizeof(half));
  const U16 wide = __builtin_convertvector(half, U16) << 16;
  std::memcpy(&out, &wide, sizeof(out));
}

inline void store(float* out, const F16& in) { std::memcpy(out, &in, sizeof(in)); }
#endif

// The first `valid` values, fewer than there are lanes, zeros behind them: what lies behind is
// never read.
template <typename Vector, typename T>
inline void load_partial(Vector& out, const T* in, std::int64_t valid) {
  T values[sizeof(Vector) / sizeof(float)] = {};
  for (std::int64_t i = 0; i < valid; ++i) values[i] = in[i];
  load(out, values);
}

template <typename Vector>
inline void store_partial(float* out, const Vector& in, std::int64_t valid) {
  float values[sizeof(Vector) / sizeof(float)];
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

#if defined(HISPARSE_AVX512)
inline void fold(F8& out, const F16& in) {
  out = __builtin_shufflevector(in, in, 0, 1, 2, 3, 4, 5, 6, 7) +
        __builtin_shufflevector(in, in, 8, 9, 10, 11, 12, 13, 14, 15);
}

// The upper half onto the lower one, then the tree.
inline float sum_lanes(const F16& in) {
  F8 half;
  fold(half, in);
  return sum_lanes(half);
}
#endif

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

#if defined(HISPARSE_AVX512)
inline void sum_lanes_of_four(const F16 (&sums)[4], F4& out) {
  F8 halves[4];
  for (int j = 0; j < 4; ++j) fold(halves[j], sums[j]);
  sum_lanes_of_four(halves, out);
}
#endif

// x = exp(x) to about 1 ulp; 0 below kLowest, infinity above kHighest; NaN stays NaN, so that
// poison shows. Own code and not libm's, so that the bits do not change with the C library.
//   exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln(2) / 2, Taylor series to degree 7.
template <typename Floats, typename Signed, typename Unsigned>
inline void exp_lanes(Floats& x) {
  constexpr float kLowest = -87.3f;
  constexpr float kHighest = 88.3f;
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // exact in 9 bits: n * kLn2High has no rounding
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23: the sum's last bit is a one
  constexpr std::int32_t kShiftBits = 0x4B400000;
  constexpr std::int32_t kExponentBias = 127;
  constexpr int kMantissaBits = 23;
  const Floats lowest = Floats{} + kLowest;
  const Floats highest = Floats{} + kHighest;
  const Signed underflow = x < lowest;
  const Signed overflow = x > highest;
  Floats clamped = underflow ? lowest : x;
  clamped = overflow ? highest : clamped;
  const Floats shifted = clamped * kLog2E + kRoundingShift;
  const Floats n = shifted - kRoundingShift;
  Floats r = clamped - n * kLn2High;
  r = r - n * kLn2Low;
  Floats p = r * (1.0f / 5040.0f) + (1.0f / 720.0f);
  p = p * r + (1.0f / 120.0f);
  p = p * r + (1.0f / 24.0f);
  p = p * r + (1.0f / 6.0f);
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  Signed exponent;
  std::memcpy(&exponent, &shifted, sizeof(exponent));
  const Unsigned power = __builtin_convertvector(exponent - kShiftBits + kExponentBias, Unsigned)
                         << kMantissaBits;
  Floats scale;
  std::memcpy(&scale, &power, sizeof(scale));
  const Floats zero = {};
  const Floats infinity = Floats{} + __builtin_inff();
  x = underflow ? zero : p * scale;
  x = overflow ? infinity : x;
}

inline void exp_of(F8& x) { exp_lanes<F8, I8, U8>(x); }
#if defined(HISPARSE_AVX512)
inline void exp_of(F16& x) { exp_lanes<F16, I16, U16>(x); }
#endif
