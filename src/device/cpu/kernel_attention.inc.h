// Attention over one segment. Per query: scores, their max, exp and sum, weighted values. A query's
// bits do not depend on the other queries of the pass: the tile sizes are instances of one body,
// and a query never touches a row behind its count.

constexpr int kKeyTile = 4;
constexpr int kQueryTile = 3;  // with four keys or vectors 12 sums, in 16 registers ...
[[maybe_unused]] constexpr int kWideQueryTile = 6;  // ... or 24 sums in 32 registers
// Many queries: rows in f32 that stay in the L1 cache while all of them pass over.
constexpr int kExpandQueries = 16;  // so many are worth expanding the rows once
constexpr int kCacheBytes = 16384;
// Few queries: rows of all heads that are passed over before the next, in the L1 cache with those
// that are fetched.
constexpr int kStreamedKeys = 16;
constexpr int kStreamedValues = 64;

#include "device/cpu/kernel_fetch.inc.h"

// Queries from `first` on, and rows of a segment.
struct Pass {
  int first = 0;
  int begin = 0;
  int end = 0;
  Fetcher* fetcher = nullptr;  // null: nothing is fetched
};

// This head's part of a row.
template <typename T>
inline const T* row_at(const SegmentAttention& s, const void* const* rows, int token) {
  return reinterpret_cast<const T*>(static_cast<const char*>(rows[token]) + s.head_offset);
}

#include "device/cpu/kernel_scores.inc.h"
#include "device/cpu/kernel_values.inc.h"

// The largest score; NaN does not count.
inline float largest_score(const float* scores, int count) {
  constexpr int kSums = 4;
  Wide max[kSums];
  for (int j = 0; j < kSums; ++j) max[j] = Wide{} - __builtin_inff();
  int i = 0;
  Wide x;
  for (; i + kSums * kWideLanes <= count; i += kSums * kWideLanes) {
    for (int j = 0; j < kSums; ++j) {
      load(x, scores + i + j * kWideLanes);
      max[j] = x > max[j] ? x : max[j];
    }
  }
  for (int j = 1; j < kSums; ++j) max[0] = max[j] > max[0] ? max[j] : max[0];
  F8 halves[kWideLanes / kLanes];
  std::memcpy(halves, max, sizeof(halves));
  max_lanes(halves[0], halves[kWideLanes / kLanes - 1]);
  float most = largest_lane(halves[0]);
  for (; i < count; ++i) most = scores[i] > most ? scores[i] : most;
  return most;
}

// scores = exp(scores - max), zeros up to the next whole vector. The partial's header has the max
// and gets the sum.
inline void exponentiate(float* scores, int count, float* partial, Fetcher* fetcher) {
  const float max = partial[0];
  Wide sum = {};
  for (int i = 0; i < count; i += kWideLanes) {
    if (fetcher != nullptr) fetcher->advance(fetcher->score_bytes);
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
  partial[1] = sum_lanes(sum);
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
  if (pass.first > 0) pass.fetcher = nullptr;  // the first tile fetches for all
  Step::template run<kQueries>(s, rows, {pass.first, pass.begin, common, pass.fetcher});
  for (int i = 0; i < kQueries; ++i) {
    const int query = pass.first + i;
    const int end = s.counts[query] < pass.end ? s.counts[query] : pass.end;
    if (common < end) Step::template run<1>(s, rows, {query, common, end});
  }
}

// All queries over the rows of the pass.
template <typename Step>
inline void run_queries(const SegmentAttention& s, const void* const* rows, Pass pass) {
#if defined(HISPARSE_AVX512)
  for (; s.query_count - pass.first >= kWideQueryTile; pass.first += kWideQueryTile) {
    run_tile<Step, kWideQueryTile>(s, rows, pass);
  }
#endif
  // Four queries are two and two, not three and one.
  for (; s.query_count - pass.first >= kQueryTile && s.query_count - pass.first != kQueryTile + 1;
       pass.first += kQueryTile) {
    run_tile<Step, kQueryTile>(s, rows, pass);
  }
  for (; s.query_count - pass.first >= 2; pass.first += 2) run_tile<Step, 2>(s, rows, pass);
  if (pass.first < s.query_count) run_tile<Step, 1>(s, rows, pass);
}

inline void start_partials(const SegmentAttention& s, Fetcher* fetcher) {
  // One after the other, so that their latencies overlap.
  for (int i = 0; i < s.query_count; ++i) {
    if (s.counts[i] == 0) continue;
    s.partials[i][0] = largest_score(s.scratch + i * kSegmentTokens, s.counts[i]);
  }
  for (int i = 0; i < s.query_count; ++i) {
    if (s.counts[i] == 0) continue;
    exponentiate(s.scratch + i * kSegmentTokens, s.counts[i], s.partials[i], fetcher);
    std::memset(s.partials[i] + kPartialHeader, 0,
                static_cast<std::size_t>(s.head_dim) * sizeof(float));
  }
}

inline int largest_count(const SegmentAttention& s) {
  int count = 0;
  for (int i = 0; i < s.query_count; ++i) count = s.counts[i] > count ? s.counts[i] : count;
  return count;
}

// Many queries over rows in f32: blocks of `block` rows, over which all queries pass before the
// next.
inline void attend(const SegmentAttention& s, int block) {
  const int rows = largest_count(s);
  for (int begin = 0; begin < rows; begin += block) {
    const int end = begin + block < rows ? begin + block : rows;
    run_queries<ScoreKeys<float>>(s, s.k_rows, {.begin = begin, .end = end});
  }
  start_partials(s, nullptr);
  for (int begin = 0; begin < rows; begin += block) {
    const int end = begin + block < rows ? begin + block : rows;
    run_queries<AddValues<float>>(s, s.v_rows, {.begin = begin, .end = end});
  }
}

// Rows in f32 that stay in the cache while all queries of a head pass over them.
inline int cached_rows(int head_dim) {
  const int fitting = kCacheBytes / (head_dim * static_cast<int>(sizeof(float)));
  return fitting < kKeyTile ? kKeyTile : fitting / kKeyTile * kKeyTile;
}

// Copies a head's part of bf16 rows to f32 and lets `rows` point to the copies.
inline void expand_rows(const SegmentAttention& s, const void* const* from, float* to,
                        const void** rows) {
  const int count = largest_count(s);
  Wide x;
  for (int t = 0; t < count; ++t, to += s.head_dim) {
    const auto* row = row_at<std::uint16_t>(s, from, t);
    rows[t] = to;
    int d = 0;
    for (; d + kWideLanes <= s.head_dim; d += kWideLanes) {
      load(x, row + d);
      store(to + d, x);
    }
    if (d == s.head_dim) continue;
    load_partial(x, row + d, s.head_dim - d);
    store_partial(to + d, x, s.head_dim - d);
  }
}

inline void attend_expanded(const SegmentAttention& segment) {
  const void* k_rows[kSegmentTokens];
  const void* v_rows[kSegmentTokens];
  SegmentAttention s = segment;
  float* k = s.scratch + kMaxQueries * kSegmentTokens;
  expand_rows(s, s.k_rows, k, k_rows);
  expand_rows(s, s.v_rows, k + kSegmentTokens * s.head_dim, v_rows);
  s.k_rows = k_rows;
  s.v_rows = v_rows;
  s.head_offset = 0;
  attend(s, cached_rows(s.head_dim));
}

// Few queries over rows that are read once, from memory.
template <typename T>
inline void attend_streamed(const SegmentAttention* heads, int count, const FetchedRuns& fetched) {
  Fetcher fetcher = make_fetcher(heads, count, fetched);
  const int rows = largest_count(heads[0]);
  for (int begin = 0; begin < rows; begin += kStreamedKeys) {
    const int end = begin + kStreamedKeys < rows ? begin + kStreamedKeys : rows;
    for (int h = 0; h < count; ++h) {
      run_queries<ScoreKeys<T>>(heads[h], heads[h].k_rows,
                                {.begin = begin, .end = end, .fetcher = &fetcher});
    }
  }
  for (int h = 0; h < count; ++h) start_partials(heads[h], &fetcher);
  for (int begin = 0; begin < rows; begin += kStreamedValues) {
    const int end = begin + kStreamedValues < rows ? begin + kStreamedValues : rows;
    for (int h = 0; h < count; ++h) {
      run_queries<AddValues<T>>(heads[h], heads[h].v_rows,
                                {.begin = begin, .end = end, .fetcher = &fetcher});
    }
  }
}

void attend_segment(const SegmentAttention* heads, int count, const FetchedRuns& fetched) {
  const bool bf16 = heads[0].element == Element::kBF16;
  if (heads[0].query_count < kExpandQueries) {
    if (bf16) return attend_streamed<std::uint16_t>(heads, count, fetched);
    return attend_streamed<float>(heads, count, fetched);
  }
  for (int h = 0; h < count; ++h) {
    if (bf16) {
      attend_expanded(heads[h]);
    } else {
      attend(heads[h], cached_rows(heads[h].head_dim));
    }
  }
}

void merge_partial(float* state, const float* partial, int head_dim) {
  const float max = partial[0] > state[0] ? partial[0] : state[0];
  F8 shares = {state[0] - max, partial[0] - max};
  exp_of(shares);
  const float keep = shares[0];
  const float add = shares[1];
  state[0] = max;
  for (int i = 1; i < kPartialHeader + head_dim; ++i) {
    state[i] = state[i] * keep + partial[i] * add;
  }
}

void finish_attention(const float* state, float* out, int head_dim) {
  const float inverse = 1.0f / state[1];
  for (int i = 0; i < head_dim; ++i) out[i] = state[kPartialHeader + i] * inverse;
}
