// The body of peak_loops_v*.cc, inside their anonymous namespace. The asm statements are empty:
// they keep the compiler from moving or merging what stands between them.

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef long long Words __attribute__((vector_size(kVectorBytes)));
constexpr int kFloatLanes = kVectorBytes / 4;

// Chains of dependent sums that run at a time: latency 4 times two a cycle is 8; 12 and two
// operands fill most of sixteen registers.
constexpr int kChains = 12;
constexpr int kOperationsOfProduct = 2;

template <typename T>
inline void opaque(T& value) {
  asm volatile("" : "+v"(value));
}

template <typename T>
inline std::int64_t first_word(const T& value) {
  std::int64_t word;
  std::memcpy(&word, &value, sizeof(word));
  return word;
}

std::int64_t run_f32(std::int64_t rounds) {
  // The sums tend to 1 and stay there.
  Floats half = Floats{} + 0.5f;
  opaque(half);
  Floats sums[kChains];
  for (int i = 0; i < kChains; ++i) {
    sums[i] = Floats{} + static_cast<float>(i);
    opaque(sums[i]);
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * half + half;
  }
  for (int i = 1; i < kChains; ++i) sums[0] += sums[i];
  return first_word(sums[0]);
}
constexpr double kF32Operations = double{kChains} * kFloatLanes * kOperationsOfProduct;

// --- integers: the same sums with the vectors of the level ---

#if defined(__AVX512F__)
typedef __m512i Ints;
inline Ints repeat8(char value) { return _mm512_set1_epi8(value); }
inline void dot_int8(Ints& sums, const Ints& w, const Ints& x, const Ints&) {
  sums = _mm512_dpbusd_epi32(sums, w, x);
}
constexpr const char* kInt8Instructions = "vpdpbusd";
constexpr const char* kInt4Instructions = "vpdpbusd";
#elif defined(__AVX2__)
typedef __m256i Ints;
inline Ints repeat8(char value) { return _mm256_set1_epi8(value); }
inline Ints multiply8(const Ints& w, const Ints& x) { return _mm256_maddubs_epi16(w, x); }
inline Ints add16(const Ints& a, const Ints& b) { return _mm256_add_epi16(a, b); }
inline void dot_int8(Ints& sums, const Ints& w, const Ints& x, const Ints& ones) {
  sums = _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones));
}
inline Ints widen16(const Ints& sums, const Ints& ones) { return _mm256_madd_epi16(sums, ones); }
inline Ints add32(const Ints& a, const Ints& b) { return _mm256_add_epi32(a, b); }
constexpr const char* kInt8Instructions = "vpmaddubsw + vpmaddwd + vpaddd";
constexpr const char* kInt4Instructions = "vpmaddubsw + vpaddw";
#else
typedef __m128i Ints;
inline Ints repeat8(char value) { return _mm_set1_epi8(value); }
inline Ints multiply8(const Ints& w, const Ints& x) { return _mm_maddubs_epi16(w, x); }
inline Ints add16(const Ints& a, const Ints& b) { return _mm_add_epi16(a, b); }
inline void dot_int8(Ints& sums, const Ints& w, const Ints& x, const Ints& ones) {
  sums = _mm_add_epi32(sums, _mm_madd_epi16(_mm_maddubs_epi16(w, x), ones));
}
inline Ints widen16(const Ints& sums, const Ints& ones) { return _mm_madd_epi16(sums, ones); }
inline Ints add32(const Ints& a, const Ints& b) { return _mm_add_epi32(a, b); }
constexpr const char* kInt8Instructions = "pmaddubsw + pmaddwd + paddd";
constexpr const char* kInt4Instructions = "pmaddubsw + paddw";
#endif

std::int64_t run_int8(std::int64_t rounds) {
  Ints w = repeat8(3), x = repeat8(-2);
  const Ints zero = repeat8(0);
  Ints ones = repeat8(1);
  // Sixteen-bit ones.
  for (int i = 0; i < kVectorBytes; i += 2) reinterpret_cast<char*>(&ones)[i + 1] = 0;
  opaque(ones);
  Ints sums[kChains];
  for (int i = 0; i < kChains; ++i) {
    sums[i] = zero;
    opaque(sums[i]);
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kChains; ++i) {
      dot_int8(sums[i], w, x, ones);
      opaque(x);
    }
  }
  std::int64_t sum = 0;
  for (int i = 0; i < kChains; ++i) sum += first_word(sums[i]);
  return sum;
}
constexpr double kInt8Operations = double{kChains} * kVectorBytes * kOperationsOfProduct;

#if !defined(__AVX512F__)
// Sixteen-bit sums hold this many pairs of 15 * 127 products.
constexpr int kNarrowSteps = 8;
constexpr int kNarrowChains = 4;

std::int64_t run_int4(std::int64_t rounds) {
  Ints w = repeat8(3), x = repeat8(-2);
  const Ints zero = repeat8(0);
  Ints ones = repeat8(1);
  for (int i = 0; i < kVectorBytes; i += 2) reinterpret_cast<char*>(&ones)[i + 1] = 0;
  opaque(ones);
  Ints wide[kNarrowChains];
  for (int i = 0; i < kNarrowChains; ++i) {
    wide[i] = zero;
    opaque(wide[i]);
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
    Ints sums[kNarrowChains];
    for (int i = 0; i < kNarrowChains; ++i) {
      sums[i] = multiply8(w, x);
      opaque(x);
    }
    for (int step = 1; step < kNarrowSteps; ++step) {
      for (int i = 0; i < kNarrowChains; ++i) {
        sums[i] = add16(sums[i], multiply8(w, x));
        opaque(x);
      }
    }
    for (int i = 0; i < kNarrowChains; ++i) wide[i] = add32(wide[i], widen16(sums[i], ones));
  }
  std::int64_t sum = 0;
  for (int i = 0; i < kNarrowChains; ++i) sum += first_word(wide[i]);
  return sum;
}
constexpr double kInt4Operations =
    double{kNarrowSteps} * kNarrowChains * kVectorBytes * kOperationsOfProduct;
#else
std::int64_t run_int4(std::int64_t rounds) { return run_int8(rounds); }
constexpr double kInt4Operations = kInt8Operations;
#endif

// --- memory ---

constexpr int kReadVectors = 4;  // of one stream and step

template <int kStreams>
std::int64_t run_read(const void* from, std::int64_t bytes) {
  const std::int64_t stride = bytes / kStreams;
  const auto* begin = static_cast<const char*>(from);
  Words sums[kStreams][kReadVectors] = {};
  for (std::int64_t at = 0; at < stride; at += kReadVectors * kVectorBytes) {
    for (int s = 0; s < kStreams; ++s) {
      for (int v = 0; v < kReadVectors; ++v) {
        Words words;
        std::memcpy(&words, begin + s * stride + at + v * kVectorBytes, sizeof(words));
        sums[s][v] += words;
      }
    }
  }
  Words sum = {};
  for (int s = 0; s < kStreams; ++s) {
    for (int v = 0; v < kReadVectors; ++v) sum += sums[s][v];
  }
  return first_word(sum);
}
