// Attention over one segment. Per query: scores, their max, exp and sum, weighted values. A query's
// bits do not depend on the other queries of the pass: the tile sizes are instances of one body,
// and a query never touches a row behind its count.

constexpr int kKeyTile = 4;
constexpr int kQueryTile = 3;  // with four keys or vectors 12 sums, in 16 registers ...
[[maybe_unused]] constexpr int kWideQueryTile = 6;  // ... or 24 sums in 32 registers
constexpr int kValueVectors = 4;
// Rows that are expanded to f32 once are worth it from so many queries on.
constexpr int kExpandQueries = 16;
// Rows of all heads that few queries pass over at a time, in the L1 cache. A multiple of the key
// tile.
constexpr int kStreamedRows = 8;
constexpr int kRowsAhead = 16;  // that are fetched meanwhile: more at a time get lost
// Keys, or values, in f32 that many queries pass over while they are in the L1 cache.
constexpr int kCacheBytes = 16384;

// Queries from `first` on, and rows of a segment.
struct Pass {
  int first = 0;
  int begin = 0;
  int end = 0;
};

// The trees of a tile. Recursive, since a loop would keep its sums in memory.
template <int kQuery, int kQueries, int kKeys>
inline void finish_scores(const Wide (&sums)[kQueries][kKeys], float* scores, float scale) {
  if constexpr (kKeys == kKeyTile) {
    F4 dots;
    sum_lanes_of_four(sums[kQuery], dots);
    dots *= scale;
    std::memcpy(scores, &dots, sizeof(dots));
  } else {
    for (int j = 0; j < kKeys; ++j) scores[j] = sum_lanes(sums[kQuery][j]) * scale;
  }
  if constexpr (kQuery + 1 < kQueries) {
    finish_scores<kQuery + 1>(sums, scores + kSegmentTokens, scale);
  }
}

// scores[q][key] = scale * dot. A dot product is one sum in each lane of a Wide over the head, and
// one tree.
template <typename T, int kQueries, int kKeys>
inline void score_tile(const SegmentAttention& s, const void* const* k_rows, int query, int key) {
  Wide sums[kQueries][kKeys] = {};
  Wide q[kQueries], k;
  const T* rows[kKeys];
  for (int j = 0; j < kKeys; ++j) rows[j] = static_cast<const T*>(k_rows[key + j]);
  int d = 0;
  for (; d + kWideLanes <= s.head_dim; d += kWideLanes) {
    for (int i = 0; i < kQueries; ++i) load(q[i], s.queries[query + i] + d);
    for (int j = 0; j < kKeys; ++j) {
      load(k, rows[j] + d);
      for (int i = 0; i < kQueries; ++i) sums[i][j] += q[i] * k;
    }
  }
  if (d < s.head_dim) {
    for (int i = 0; i < kQueries; ++i) load_partial(q[i], s.queries[query + i] + d, s.head_dim - d);
    for (int j = 0; j < kKeys; ++j) {
      load_partial(k, rows[j] + d, s.head_dim - d);
      for (int i = 0; i < kQueries; ++i) sums[i][j] += q[i] * k;
    }
  }
  finish_scores<0>(sums, s.scratch + query * kSegmentTokens + key, s.scale);
}

template <typename T, int kQueries>
inline void score_keys(const SegmentAttention& s, const void* const* k_rows, const Pass& pass) {
  int key = pass.begin;
  for (; key + kKeyTile <= pass.end; key += kKeyTile) {
    score_tile<T, kQueries, kKeyTile>(s, k_rows, pass.first, key);
  }
  for (; key < pass.end; ++key) score_tile<T, kQueries, 1>(s, k_rows, pass.first, key);
}

// scores = exp(scores - max), zeros up to the next whole vector; fills the partial's header.
inline void exponentiate(float* scores, int count, float* partial) {
  const float max = largest(scores, count);
  Wide sum = {};
  for (int i = 0; i < count; i += kWideLanes) {
    Wide x;
    if (i + kWideLanes <= count) {
      load(x, scores + i);
      x -= max;
      exp_of(x);
    } else {
      load_partial(x, scores + i, count - i);
      x -= max;
      exp_of(x);
      float kept[kWideLanes];
      store(kept, x);
      load_partial(x, kept, count - i);
    }
    store(scores + i, x);
    sum += x;
  }
  partial[0] = max;
  partial[1] = sum_lanes(sum);
}

// Adds weights[q][t] * v[t] over the pass to kVectors vectors of the partials' values.
template <typename T, int kQueries, int kVectors>
inline void add_value_tile(const SegmentAttention& s, const void* const* v_rows, const Pass& pass,
                           int column) {
  Wide sums[kQueries][kVectors];
  Wide v;
  float w[kQueries];
  const float* weights = s.scratch + pass.first * kSegmentTokens;
  for (int i = 0; i < kQueries; ++i) {
    const float* values = s.partials[pass.first + i] + kPartialHeader + column;
    for (int j = 0; j < kVectors; ++j) load(sums[i][j], values + j * kWideLanes);
  }
  for (int t = pass.begin; t < pass.end; ++t) {
    const T* row = static_cast<const T*>(v_rows[t]) + column;
    for (int i = 0; i < kQueries; ++i) w[i] = weights[i * kSegmentTokens + t];
    for (int j = 0; j < kVectors; ++j) {
      load(v, row + j * kWideLanes);
      for (int i = 0; i < kQueries; ++i) sums[i][j] += w[i] * v;
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    float* values = s.partials[pass.first + i] + kPartialHeader + column;
    for (int j = 0; j < kVectors; ++j) store(values + j * kWideLanes, sums[i][j]);
  }
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
    load_partial(v, static_cast<const T*>(v_rows[t]) + column, valid);
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

template <typename T>
struct ScoreKeys {
  template <int kQueries>
  static inline void run(const SegmentAttention& s, const void* const* rows, const Pass& pass) {
    score_keys<T, kQueries>(s, rows, pass);
  }
};

template <typename T>
struct AddValues {
  template <int kQueries>
  static inline void run(const SegmentAttention& s, const void* const* rows, const Pass& pass) {
    add_values<T, kQueries>(s, rows, pass);
  }
};

// kQueries together over the rows that all of them see, then each alone.
template <typename Step, int kQueries>
inline void run_tile(const SegmentAttention& s, const void* const* rows, Pass pass) {
  int common = pass.end;
  for (int i = 0; i < kQueries; ++i) {
    if (s.counts[pass.first + i] < common) common = s.counts[pass.first + i];
  }
  if (common < pass.begin) common = pass.begin;
  Step::template run<kQueries>(s, rows, {pass.first, pass.begin, common});
  for (int i = 0; i < kQueries; ++i) {
    const int query = pass.first + i;
    const int end = s.counts[query] < pass.end ? s.counts[query] : pass.end;
    if (common < end) Step::template run<1>(s, rows, {query, common, end});
  }
}

// All queries over rows [begin, end).
template <typename Step>
inline void run_queries(const SegmentAttention& s, const void* const* rows, int begin, int end) {
  int query = 0;
#if defined(HISPARSE_AVX512)
  for (; s.query_count - query >= kWideQueryTile; query += kWideQueryTile) {
    run_tile<Step, kWideQueryTile>(s, rows, {query, begin, end});
  }
#endif
  // Four queries are two and two, not three and one.
  for (; s.query_count - query >= kQueryTile && s.query_count - query != kQueryTile + 1;
       query += kQueryTile) {
    run_tile<Step, kQueryTile>(s, rows, {query, begin, end});
  }
  for (; s.query_count - query >= 2; query += 2) run_tile<Step, 2>(s, rows, {query, begin, end});
  if (query < s.query_count) run_tile<Step, 1>(s, rows, {query, begin, end});
}

inline void expand_row(const std::uint16_t* from, int width, float* to) {
  int d = 0;
  Wide x;
  for (; d + kWideLanes <= width; d += kWideLanes) {
    load(x, from + d);
    store(to + d, x);
  }
  if (d == width) return;
  load_partial(x, from + d, width - d);
  store_partial(to + d, x, width - d);
}

// Copies bf16 rows to f32 and lets `rows` point to the copies.
inline void expand_rows(const SegmentAttention& s, const void* const* from, int count, float* to,
                        const void** rows) {
  for (int t = 0; t < count; ++t, to += s.head_dim) {
    expand_row(static_cast<const std::uint16_t*>(from[t]), s.head_dim, to);
    rows[t] = to;
  }
}

inline void start_partials(const SegmentAttention& s) {
  for (int i = 0; i < s.query_count; ++i) {
    if (s.counts[i] == 0) continue;
    exponentiate(s.scratch + i * kSegmentTokens, s.counts[i], s.partials[i]);
    std::memset(s.partials[i] + kPartialHeader, 0,
                static_cast<std::size_t>(s.head_dim) * sizeof(float));
  }
}

inline int largest_count(const SegmentAttention& s) {
  int count = 0;
  for (int i = 0; i < s.query_count; ++i) count = s.counts[i] > count ? s.counts[i] : count;
  return count;
}

// Blocks of `block` rows, over which all queries of the head pass before the next.
inline void attend(const SegmentAttention& s, int block) {
  const int rows = largest_count(s);
  for (int begin = 0; begin < rows; begin += block) {
    const int end = begin + block < rows ? begin + block : rows;
    run_queries<ScoreKeys<float>>(s, s.k_rows, begin, end);
  }
  start_partials(s);
  for (int begin = 0; begin < rows; begin += block) {
    const int end = begin + block < rows ? begin + block : rows;
    run_queries<AddValues<float>>(s, s.v_rows, begin, end);
  }
}

// Rows in f32 that stay in the cache while all queries of a head pass over them.
inline int cached_rows(int head_dim) {
  const int fitting = kCacheBytes / (head_dim * static_cast<int>(sizeof(float)));
  return fitting < kKeyTile ? kKeyTile : fitting / kKeyTile * kKeyTile;
}

inline void attend_expanded(const SegmentAttention& segment) {
  const void* k_rows[kSegmentTokens];
  const void* v_rows[kSegmentTokens];
  SegmentAttention s = segment;
  const int count = largest_count(s);
  float* k = s.scratch + kMaxQueries * kSegmentTokens;
  expand_rows(s, s.k_rows, count, k, k_rows);
  expand_rows(s, s.v_rows, count, k + kSegmentTokens * s.head_dim, v_rows);
  s.k_rows = k_rows;
  s.v_rows = v_rows;
  attend(s, cached_rows(s.head_dim));
}

// Rows of a block, of all heads side by side, in f32. They are read in the order in which they lie
// in memory.
struct StreamedRows {
  const SegmentAttention* heads = nullptr;
  int count = 0;
  float* to = nullptr;  // [kStreamedRows, count * head_dim]

  void expand(const void* const* from, int begin, int end, int rows) const {
    const int width = count * heads[0].head_dim;
    for (int t = begin; t < end; ++t) {
      if (t + kRowsAhead < rows) {
        const auto* at = static_cast<const char*>(from[t + kRowsAhead]);
        const int bytes = width * static_cast<int>(sizeof(std::uint16_t));
        for (int i = 0; i < bytes; i += kLineBytes) __builtin_prefetch(at + i);
      }
      expand_row(static_cast<const std::uint16_t*>(from[t]), width, to + (t - begin) * width);
    }
  }
  // Where the rows of one head are then.
  void locate(int head, int begin, int end, const void** rows) const {
    const int head_dim = heads[0].head_dim;
    for (int t = begin; t < end; ++t) {
      rows[t] = to + (t - begin) * count * head_dim + head * head_dim;
    }
  }
};

template <typename Step>
inline void pass_over(const StreamedRows& streamed, const void* const* from, int rows) {
  const void* located[kSegmentTokens];
  for (int begin = 0; begin < rows; begin += kStreamedRows) {
    const int end = begin + kStreamedRows < rows ? begin + kStreamedRows : rows;
    streamed.expand(from, begin, end, rows);
    for (int h = 0; h < streamed.count; ++h) {
      streamed.locate(h, begin, end, located);
      run_queries<Step>(streamed.heads[h], located, begin, end);
    }
  }
}

// Few queries over bf16 rows that are read once, from memory.
inline void attend_streamed(const SegmentAttention* heads, int count) {
  const int rows = largest_count(heads[0]);
  const StreamedRows streamed = {
      .heads = heads, .count = count, .to = heads[0].scratch + kMaxQueries * kSegmentTokens};
  pass_over<ScoreKeys<float>>(streamed, heads[0].k_rows, rows);
  for (int h = 0; h < count; ++h) start_partials(heads[h]);
  pass_over<AddValues<float>>(streamed, heads[0].v_rows, rows);
}

void attend_segment(const SegmentAttention* heads, int count) {
  const bool many = heads[0].query_count >= kExpandQueries;
  if (heads[0].element == Element::kF32) {
    for (int h = 0; h < count; ++h) attend(heads[h], cached_rows(heads[h].head_dim));
  } else if (many) {
    for (int h = 0; h < count; ++h) attend_expanded(heads[h]);
  } else {
    // The scratch of one head takes a block of so many heads.
    constexpr int kMostHeads = 2 * kSegmentTokens / kStreamedRows;
    for (int h = 0; h < count; h += kMostHeads) {
      attend_streamed(heads + h, count - h < kMostHeads ? count - h : kMostHeads);
    }
  }
}

void merge_partial(float* state, const float* partial, int head_dim) {
  const float max = partial[0] > state[0] ? partial[0] : state[0];
  const float keep = exp1(state[0] - max);
  const float add = exp1(partial[0] - max);
  state[0] = max;
  for (int i = 1; i < kPartialHeader + head_dim; ++i) {
    state[i] = state[i] * keep + partial[i] * add;
  }
}

void finish_attention(const float* state, float* out, int head_dim) {
  const float inverse = 1.0f / state[1];
  for (int i = 0; i < head_dim; ++i) out[i] = state[kPartialHeader + i] * inverse;
}
