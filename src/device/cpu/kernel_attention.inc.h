// Attention over one segment. Per query: scores, their max, exp and sum, weighted values. A query's
// bits do not depend on the other queries of the pass: the tile sizes are instances of one body,
// and a query never touches a row behind its count.

constexpr int kKeyTile = 4;
constexpr int kQueryTile = 2;
constexpr int kValueVectors = 4;

// scores[q][key] = scale * dot. A dot product is eight sums over the head (lane i takes the values
// i, i + 8, ...) and one tree.
template <typename T, int kQueries, int kKeys>
inline void score_tile(const SegmentAttention& s, int query, int key,
                       float (*scores)[kSegmentTokens]) {
  F8 sums[kQueries][kKeys] = {};
  F8 q[kQueries], k;
  const T* rows[kKeys];
  for (int j = 0; j < kKeys; ++j) rows[j] = static_cast<const T*>(s.k_rows[key + j]);
  int d = 0;
  for (; d + kLanes <= s.head_dim; d += kLanes) {
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
  if constexpr (kQueries == kQueryTile && kKeys == kKeyTile) {
    F8 dots;
    sum_lanes_of_eight(sums, dots);
    dots *= s.scale;
    std::memcpy(scores[0] + key, &dots, sizeof(dots) / 2);
    std::memcpy(scores[1] + key, reinterpret_cast<const char*>(&dots) + sizeof(dots) / 2,
                sizeof(dots) / 2);
  } else {
    for (int i = 0; i < kQueries; ++i) {
      for (int j = 0; j < kKeys; ++j) scores[i][key + j] = sum_lanes(sums[i][j]) * s.scale;
    }
  }
}

template <typename T, int kQueries>
inline void score_keys(const SegmentAttention& s, int query, int begin, int end,
                       float (*scores)[kSegmentTokens]) {
  int key = begin;
  for (; key + kKeyTile <= end; key += kKeyTile) {
    score_tile<T, kQueries, kKeyTile>(s, query, key, scores);
  }
  for (; key < end; ++key) score_tile<T, kQueries, 1>(s, query, key, scores);
}

inline float largest(const float* scores, int count) {
  F8 lanes, x;
  splat(lanes, -__builtin_inff());
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    load(x, scores + i);
    max_lanes(lanes, x);
  }
  float max = largest_lane(lanes);
  for (; i < count; ++i) max = scores[i] > max ? scores[i] : max;
  return max;
}

// scores = exp(scores - max), zeros up to the next multiple of eight; fills the partial's header.
inline void exponentiate(float* scores, int count, float* partial) {
  const float max = largest(scores, count);
  F8 sum = {};
  for (int i = 0; i < count; i += kLanes) {
    F8 x;
    if (i + kLanes <= count) {
      load(x, scores + i);
      x -= max;
      exp8(x);
    } else {
      load_partial(x, scores + i, count - i);
      x -= max;
      exp8(x);
      float kept[kLanes];
      store(kept, x);
      load_partial(x, kept, count - i);
    }
    store(scores + i, x);
    sum += x;
  }
  partial[0] = max;
  partial[1] = sum_lanes(sum);
}

// Adds weights[q][t] * v[t] over t in [begin, end) to kVectors vectors of the partials' values.
template <typename T, int kQueries, int kVectors>
inline void add_value_tile(const SegmentAttention& s, int query, int column, int begin, int end,
                           const float (*weights)[kSegmentTokens]) {
  F8 sums[kQueries][kVectors];
  F8 v[kVectors];
  for (int i = 0; i < kQueries; ++i) {
    const float* values = s.partials[query + i] + kPartialHeader + column;
    for (int j = 0; j < kVectors; ++j) load(sums[i][j], values + j * kLanes);
  }
  for (int t = begin; t < end; ++t) {
    const T* row = static_cast<const T*>(s.v_rows[t]) + column;
    for (int j = 0; j < kVectors; ++j) load(v[j], row + j * kLanes);
    for (int i = 0; i < kQueries; ++i) {
      for (int j = 0; j < kVectors; ++j) sums[i][j] += weights[i][t] * v[j];
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    float* values = s.partials[query + i] + kPartialHeader + column;
    for (int j = 0; j < kVectors; ++j) store(values + j * kLanes, sums[i][j]);
  }
}

// The columns behind the last whole vector.
template <typename T>
inline void add_value_tail(const SegmentAttention& s, int query, int column, int begin, int end,
                           const float* weights) {
  const int valid = s.head_dim - column;
  float* values = s.partials[query] + kPartialHeader + column;
  F8 sums, v;
  load_partial(sums, values, valid);
  for (int t = begin; t < end; ++t) {
    load_partial(v, static_cast<const T*>(s.v_rows[t]) + column, valid);
    sums += weights[t] * v;
  }
  store_partial(values, sums, valid);
}

template <typename T, int kQueries>
inline void add_values(const SegmentAttention& s, int query, int begin, int end,
                       const float (*weights)[kSegmentTokens]) {
  if (begin >= end) return;
  int column = 0;
  for (; column + kValueVectors * kLanes <= s.head_dim; column += kValueVectors * kLanes) {
    add_value_tile<T, kQueries, kValueVectors>(s, query, column, begin, end, weights);
  }
  for (; column + kLanes <= s.head_dim; column += kLanes) {
    add_value_tile<T, kQueries, 1>(s, query, column, begin, end, weights);
  }
  if (column == s.head_dim) return;
  for (int i = 0; i < kQueries; ++i) {
    add_value_tail<T>(s, query + i, column, begin, end, weights[i]);
  }
}

inline void start_partial(float* partial, float* scores, int count, int head_dim) {
  exponentiate(scores, count, partial);
  std::memset(partial + kPartialHeader, 0, static_cast<std::size_t>(head_dim) * sizeof(float));
}

// One or two queries; the shorter one stops at its own count.
template <typename T>
inline void attend_pair(const SegmentAttention& s, int query) {
  alignas(sizeof(F8)) float scores[kQueryTile][kSegmentTokens];
  const int first = s.counts[query];
  const int second = query + 1 < s.query_count ? s.counts[query + 1] : 0;
  const int both = first < second ? first : second;
  score_keys<T, kQueryTile>(s, query, 0, both, scores);
  score_keys<T, 1>(s, query, both, first, scores);
  score_keys<T, 1>(s, query + 1, both, second, scores + 1);
  if (first > 0) start_partial(s.partials[query], scores[0], first, s.head_dim);
  if (second > 0) start_partial(s.partials[query + 1], scores[1], second, s.head_dim);
  add_values<T, kQueryTile>(s, query, 0, both, scores);
  add_values<T, 1>(s, query, both, first, scores);
  add_values<T, 1>(s, query + 1, both, second, scores + 1);
}

void attend_segment(const SegmentAttention& segment) {
  for (int query = 0; query < segment.query_count; query += kQueryTile) {
    if (segment.element == Element::kBF16) {
      attend_pair<std::uint16_t>(segment, query);
    } else {
      attend_pair<float>(segment, query);
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
