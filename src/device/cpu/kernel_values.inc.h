// Weighted sums of values over rows. Every column is a sum of its own, so it does not matter which
// lane it is in.

constexpr int kValueVectors = 4;
constexpr int kValueRun = 4;  // rows between two fetches

// AVX-512 turns two vectors of bf16 into f32 with one instruction each when their columns may
// change places: 0 ... 3, 8 ... 11, 16 ... 19, 24 ... 27 are in the first, the others in the
// second.
#if defined(HISPARSE_AVX512)
template <typename T, int kVectors>
constexpr bool kPairedColumns = sizeof(T) == sizeof(std::uint16_t) && kVectors % 2 == 0;

inline void load_paired(F16& first, F16& second, const std::uint16_t* in) {
  const __m512i halves = _mm512_loadu_si512(in);
  const __m512i low = _mm512_unpacklo_epi16(_mm512_setzero_si512(), halves);
  const __m512i high = _mm512_unpackhi_epi16(_mm512_setzero_si512(), halves);
  std::memcpy(&first, &low, sizeof(first));
  std::memcpy(&second, &high, sizeof(second));
}
inline void pair_columns(F16& first, F16& second) {
  const F16 a = first, b = second;
  first = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  second =
      __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
inline void unpair_columns(F16& first, F16& second) {
  const F16 a = first, b = second;
  first = __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  second =
      __builtin_shufflevector(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
}
#else
template <typename T, int kVectors>
constexpr bool kPairedColumns = false;

template <typename T>
inline void load_paired(Wide& /*first*/, Wide& /*second*/, const T* /*in*/) {}
inline void pair_columns(Wide& /*first*/, Wide& /*second*/) {}
inline void unpair_columns(Wide& /*first*/, Wide& /*second*/) {}
#endif

template <typename T, int kQueries, int kVectors>
inline void load_value_sums(const SegmentAttention& s, int query, int column,
                            Wide (&sums)[kQueries][kVectors]) {
  for (int i = 0; i < kQueries; ++i) {
    const float* values = s.partials[query + i] + kPartialHeader + column;
    for (int j = 0; j < kVectors; ++j) load(sums[i][j], values + j * kWideLanes);
    if constexpr (kPairedColumns<T, kVectors>) {
      for (int j = 0; j < kVectors; j += 2) pair_columns(sums[i][j], sums[i][j + 1]);
    }
  }
}

template <typename T, int kQueries, int kVectors>
inline void store_value_sums(const SegmentAttention& s, int query, int column,
                             Wide (&sums)[kQueries][kVectors]) {
  for (int i = 0; i < kQueries; ++i) {
    float* values = s.partials[query + i] + kPartialHeader + column;
    if constexpr (kPairedColumns<T, kVectors>) {
      for (int j = 0; j < kVectors; j += 2) unpair_columns(sums[i][j], sums[i][j + 1]);
    }
    for (int j = 0; j < kVectors; ++j) store(values + j * kWideLanes, sums[i][j]);
  }
}

// sums[q] += w[q] * the row's columns.
template <typename T, int kQueries, int kVectors>
inline void add_value_row(const float (&w)[kQueries], const T* row,
                          Wide (&sums)[kQueries][kVectors]) {
  if constexpr (kPairedColumns<T, kVectors>) {
    for (int j = 0; j < kVectors; j += 2) {
      Wide first, second;
      load_paired(first, second, row + j * kWideLanes);
      for (int i = 0; i < kQueries; ++i) sums[i][j] += w[i] * first;
      for (int i = 0; i < kQueries; ++i) sums[i][j + 1] += w[i] * second;
    }
  } else {
    for (int j = 0; j < kVectors; ++j) {
      Wide v;
      load(v, row + j * kWideLanes);
      for (int i = 0; i < kQueries; ++i) sums[i][j] += w[i] * v;
    }
  }
}

// Adds weights[q][t] * v[t] over the pass to kVectors vectors of the partials' values.
template <typename T, int kQueries, int kVectors>
inline void add_value_tile(const SegmentAttention& s, const void* const* v_rows, const Pass& pass,
                           int column) {
  Wide sums[kQueries][kVectors];
  load_value_sums<T>(s, pass.first, column, sums);
  const float* weights = s.scratch + pass.first * kSegmentTokens;
  for (int run = pass.begin; run < pass.end; run += kValueRun) {
    const int end = run + kValueRun < pass.end ? run + kValueRun : pass.end;
    if (pass.fetcher != nullptr) {
      pass.fetcher->advance(kValueRun * kVectors * pass.fetcher->value_bytes);
    }
    for (int t = run; t < end; ++t) {
      float w[kQueries];
      for (int i = 0; i < kQueries; ++i) w[i] = weights[i * kSegmentTokens + t];
      add_value_row(w, row_at<T>(s, v_rows, t) + column, sums);
    }
  }
  store_value_sums<T>(s, pass.first, column, sums);
}

// The columns behind the last whole vector.
template <typename T>
inline void add_value_tail(const SegmentAttention& s, const void* const* v_rows, const Pass& pass,
                           int query, int column) {
  const int valid = s.head_dim - column;
  const float* weights = s.scratch + query * kSegmentTokens;
  float* values = s.partials[query] + kPartialHeader + column;
  Wide sums, v;
  load_partial(sums, values, valid);
  for (int t = pass.begin; t < pass.end; ++t) {
    load_partial(v, row_at<T>(s, v_rows, t) + column, valid);
    sums += weights[t] * v;
  }
  store_partial(values, sums, valid);
}

template <typename T, int kQueries>
inline void add_values(const SegmentAttention& s, const void* const* v_rows, const Pass& pass) {
  if (pass.begin >= pass.end) return;
  int column = 0;
  for (; column + kValueVectors * kWideLanes <= s.head_dim; column += kValueVectors * kWideLanes) {
    add_value_tile<T, kQueries, kValueVectors>(s, v_rows, pass, column);
  }
  for (; column + kWideLanes <= s.head_dim; column += kWideLanes) {
    add_value_tile<T, kQueries, 1>(s, v_rows, pass, column);
  }
  if (column == s.head_dim) return;
  for (int i = 0; i < kQueries; ++i) add_value_tail<T>(s, v_rows, pass, pass.first + i, column);
}
