// Neighbouring output columns in the lanes of a vector, and products of quantised weights with int8
// activations, for the instruction-set level of the including file. `Quads` holds four neighbours
// of k for each of these columns. Integer sums are exact, so their order does not matter to the
// bits; the lanes are columns, so their number does not either.
//   add_int4: sums += w * x for w of 0 ... 15; at most kGroupQuads times
//   add_int8: sums += w * x for w of -128 ... 127 and x of -127 ... 127; w went through
//     prepare_int8, and the sums through start_int8, which takes the sum of all x
//   int4_to_float, int8_to_float: the columns' sums

#if defined(HISPARSE_AVX512)

typedef F16 Columns;
typedef U16 ColumnBits;

typedef __m512i Quads;
typedef __m512i IntSums;

inline void clear(IntSums& sums) { sums = _mm512_setzero_si512(); }

inline void load_quads(Quads& out, const std::uint8_t* in) { out = _mm512_loadu_si512(in); }

// The same four values for every column.
inline void repeat_quad(Quads& out, const std::int8_t* in) {
  std::int32_t quad;
  std::memcpy(&quad, in, sizeof(quad));
  out = _mm512_set1_epi32(quad);
}

inline void split_nibbles(Quads& low, Quads& high, const Quads& in) {
  const __m512i mask = _mm512_set1_epi8(0xf);
  low = _mm512_and_si512(in, mask);
  high = _mm512_and_si512(_mm512_srli_epi16(in, 4), mask);
}

inline void add_int4(IntSums& sums, const Quads& w, const Quads& x) {
  sums = _mm512_dpbusd_epi32(sums, w, x);
}

// The unsigned factor is w + 128, so the sums begin with -128 times the sum of the other.
constexpr std::int32_t kBias = 128;
inline void start_int8(IntSums& sums, std::int32_t sum_of_x) {
  sums = _mm512_broadcastd_epi32(_mm_cvtsi32_si128(-kBias * sum_of_x));
}
inline void prepare_int8(Quads& w) {
  w = _mm512_xor_si512(w, _mm512_set1_epi8(static_cast<char>(kBias)));
}
inline void add_int8(IntSums& sums, const Quads& w, const Quads& x) {
  sums = _mm512_dpbusd_epi32(sums, w, x);
}

inline void int8_to_float(Columns& out, const IntSums& sums) {
  typedef std::int32_t Lanes __attribute__((vector_size(64)));
  Lanes lanes;
  std::memcpy(&lanes, &sums, sizeof(lanes));
  out = __builtin_convertvector(lanes, Columns);
}
inline void int4_to_float(Columns& out, const IntSums& sums) { int8_to_float(out, sums); }

inline void load_halves(Columns& out, const std::uint16_t* in) {
  const __m256 lanes[2] = {
      _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in))),
      _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in) + 1))};
  std::memcpy(&out, lanes, sizeof(out));
}

// sums += w[0] * x[0] + w[1] * x[1] for the pair of bf16 in each lane of w, and the pair at x.
inline void add_bf16_pair(Columns& sums, const ColumnBits& w, std::uint32_t x) {
  // Not _mm512_set1_epi32: clang 16 crashes on its cast.
  const __m512i pairs = _mm512_broadcastd_epi32(_mm_cvtsi32_si128(static_cast<std::int32_t>(x)));
  __m512i weights;
  __m512 lanes;
  std::memcpy(&weights, &w, sizeof(weights));
  std::memcpy(&lanes, &sums, sizeof(lanes));
  lanes = _mm512_dpbf16_ps(lanes, (__m512bh)weights, (__m512bh)pairs);
  std::memcpy(&sums, &lanes, sizeof(sums));
}

#elif defined(__AVX2__)

typedef F8 Columns;
typedef U8 ColumnBits;

typedef __m256i Quads;
typedef __m256i IntSums;

inline void clear(IntSums& sums) { sums = _mm256_setzero_si256(); }

inline void load_quads(Quads& out, const std::uint8_t* in) {
  out = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
}

// The same four values for every column.
inline void repeat_quad(Quads& out, const std::int8_t* in) {
  std::int32_t quad;
  std::memcpy(&quad, in, sizeof(quad));
  out = _mm256_set1_epi32(quad);
}

inline void split_nibbles(Quads& low, Quads& high, const Quads& in) {
  const __m256i mask = _mm256_set1_epi8(0xf);
  low = _mm256_and_si256(in, mask);
  high = _mm256_and_si256(_mm256_srli_epi16(in, 4), mask);
}

// Sixteen-bit sums of two neighbours: 8 quads * 2 * 15 * 127 fits.
inline void add_int4(IntSums& sums, const Quads& w, const Quads& x) {
  sums = _mm256_add_epi16(sums, _mm256_maddubs_epi16(w, x));
}
inline void int4_to_float(Columns& out, const IntSums& sums) {
  const __m256 lanes = _mm256_cvtepi32_ps(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
  std::memcpy(&out, &lanes, sizeof(out));
}
inline void start_int8(IntSums& sums, std::int32_t /*sum_of_x*/) { clear(sums); }
inline void prepare_int8(Quads& /*w*/) {}
// The unsigned factor is |w|; the other takes over its sign: 2 * 128 * 127 fits sixteen bits.
inline void add_int8(IntSums& sums, const Quads& w, const Quads& x) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  sums = _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

inline void int8_to_float(Columns& out, const IntSums& sums) {
  const __m256 lanes = _mm256_cvtepi32_ps(sums);
  std::memcpy(&out, &lanes, sizeof(out));
}

inline void load_halves(Columns& out, const std::uint16_t* in) {
  const __m256 lanes = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
  std::memcpy(&out, &lanes, sizeof(out));
}

#else  // SSSE3: two times sixteen bytes

typedef F8 Columns;
typedef U8 ColumnBits;

struct Quads {
  __m128i part[2];
};
struct IntSums {
  __m128i part[2];
};

inline void clear(IntSums& sums) { sums.part[0] = sums.part[1] = _mm_setzero_si128(); }

inline void load_quads(Quads& out, const std::uint8_t* in) {
  for (int i = 0; i < 2; ++i) {
    out.part[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in) + i);
  }
}

inline void repeat_quad(Quads& out, const std::int8_t* in) {
  std::int32_t quad;
  std::memcpy(&quad, in, sizeof(quad));
  out.part[0] = out.part[1] = _mm_set1_epi32(quad);
}

inline void split_nibbles(Quads& low, Quads& high, const Quads& in) {
  const __m128i mask = _mm_set1_epi8(0xf);
  for (int i = 0; i < 2; ++i) {
    low.part[i] = _mm_and_si128(in.part[i], mask);
    high.part[i] = _mm_and_si128(_mm_srli_epi16(in.part[i], 4), mask);
  }
}

inline void add_int4(IntSums& sums, const Quads& w, const Quads& x) {
  for (int i = 0; i < 2; ++i) {
    sums.part[i] = _mm_add_epi16(sums.part[i], _mm_maddubs_epi16(w.part[i], x.part[i]));
  }
}

inline void int8_to_float(Columns& out, const IntSums& sums) {
  const __m128 lanes[2] = {_mm_cvtepi32_ps(sums.part[0]), _mm_cvtepi32_ps(sums.part[1])};
  std::memcpy(&out, lanes, sizeof(out));
}

inline void int4_to_float(Columns& out, const IntSums& sums) {
  IntSums wide;
  for (int i = 0; i < 2; ++i) wide.part[i] = _mm_madd_epi16(sums.part[i], _mm_set1_epi16(1));
  int8_to_float(out, wide);
}

inline void start_int8(IntSums& sums, std::int32_t /*sum_of_x*/) { clear(sums); }
inline void prepare_int8(Quads& /*w*/) {}
inline void add_int8(IntSums& sums, const Quads& w, const Quads& x) {
  for (int i = 0; i < 2; ++i) {
    const __m128i pairs =
        _mm_maddubs_epi16(_mm_abs_epi8(w.part[i]), _mm_sign_epi8(x.part[i], w.part[i]));
    sums.part[i] = _mm_add_epi32(sums.part[i], _mm_madd_epi16(pairs, _mm_set1_epi16(1)));
  }
}

inline void load_halves(Columns& out, const std::uint16_t* in) {
  float values[kLanes];
  for (int i = 0; i < kLanes; ++i) values[i] = base::to_float(base::f16{in[i]});
  load(out, values);
}

#endif

constexpr int kColumnLanes = sizeof(Columns) / sizeof(float);

inline void load(ColumnBits& out, const std::uint32_t* in) { std::memcpy(&out, in, sizeof(out)); }

// Pairs of bf16: the first, or the second, of each.
inline void load_low_halves(Columns& out, const std::uint32_t* in) {
  ColumnBits pairs;
  load(pairs, in);
  pairs <<= 16;
  std::memcpy(&out, &pairs, sizeof(out));
}
inline void load_high_halves(Columns& out, const std::uint32_t* in) {
  ColumnBits pairs;
  load(pairs, in);
  pairs &= 0xFFFF0000u;
  std::memcpy(&out, &pairs, sizeof(out));
}
