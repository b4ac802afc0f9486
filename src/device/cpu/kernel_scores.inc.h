// Scores of a tile of queries and keys, for kernel_attention.inc.h.

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
  for (int j = 0; j < kKeys; ++j) rows[j] = row_at<T>(s, k_rows, key + j);
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

#if defined(HISPARSE_AVX512)

// Sixteen keys at a time: the trees over the lanes of sixteen dot products are one tree over
// registers. It adds in the order of sum_lanes, so the bits are those of a key alone.
constexpr int kKeyBlock = 16;
constexpr int kKeyBlockTiles = kKeyBlock / kKeyTile;

// Each halves the lanes of `a` and of `b`, side by side: what is left of every run of 16, 8, 4 or 2
// lanes is the sum of its first and its second half.
inline void fold_16(F16& out, const F16& a, const F16& b) {
  out = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
        __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
}
inline void fold_8(F16& out, const F16& a, const F16& b) {
  out = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
        __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
inline void fold_4(F16& out, const F16& a, const F16& b) {
  out = __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
        __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
inline void fold_2(F16& out, const F16& a, const F16& b) {
  out = __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
        __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
}

// By recursion: a loop may keep the sums in memory.
template <int kKey = 0, typename T, int kQueries>
inline void add_keys(F16 (&sums)[kQueries][kKeyTile], const F16 (&q)[kQueries],
                     const T* const (&rows)[kKeyTile], int d) {
  F16 k;
  load(k, rows[kKey] + d);
  for (int i = 0; i < kQueries; ++i) sums[i][kKey] += q[i] * k;
  if constexpr (kKey + 1 < kKeyTile) add_keys<kKey + 1>(sums, q, rows, d);
}

// quarters[i]: four lanes of sums of query i for each key of a tile.
template <typename T, int kQueries>
inline void sum_key_tile(const SegmentAttention& s, const T* const (&rows)[kKeyTile], int query,
                         F16 (&quarters)[kQueries]) {
  F16 sums[kQueries][kKeyTile] = {};
  F16 q[kQueries];
  for (int d = 0; d < s.head_dim; d += kWideLanes) {
    for (int i = 0; i < kQueries; ++i) load(q[i], s.queries[query + i] + d);
    add_keys(sums, q, rows, d);
  }
  for (int i = 0; i < kQueries; ++i) {
    F16 first, second;
    fold_16(first, sums[i][0], sums[i][1]);
    fold_16(second, sums[i][2], sums[i][3]);
    fold_8(quarters[i], first, second);
  }
}

// scores[q][key ... key + 15] = scale * dot. head_dim is a multiple of the lanes. The keys of a
// tile are as far apart as there are tiles: so the trees leave the scores in the order of the keys.
template <typename T, int kQueries>
inline void score_key_block(const SegmentAttention& s, const void* const* k_rows, const Pass& pass,
                            int key) {
  F16 quarters[kKeyBlockTiles][kQueries];
  for (int tile = 0; tile < kKeyBlockTiles; ++tile) {
    if (pass.fetcher != nullptr) pass.fetcher->advance(kKeyTile * pass.fetcher->key_bytes);
    const T* rows[kKeyTile];
    for (int j = 0; j < kKeyTile; ++j) {
      rows[j] = row_at<T>(s, k_rows, key + tile + j * kKeyBlockTiles);
    }
    sum_key_tile<T>(s, rows, pass.first, quarters[tile]);
  }
  for (int i = 0; i < kQueries; ++i) {
    F16 first, second, dots;
    fold_4(first, quarters[0][i], quarters[1][i]);
    fold_4(second, quarters[2][i], quarters[3][i]);
    fold_2(dots, first, second);
    dots *= s.scale;
    store(s.scratch + (pass.first + i) * kSegmentTokens + key, dots);
  }
}

#endif

template <typename T, int kQueries>
inline void score_keys(const SegmentAttention& s, const void* const* k_rows, const Pass& pass) {
  int key = pass.begin;
#if defined(HISPARSE_AVX512)
  if (s.head_dim % kWideLanes == 0) {
    for (; key + kKeyBlock <= pass.end; key += kKeyBlock) {
      score_key_block<T, kQueries>(s, k_rows, pass, key);
    }
  }
#endif
  for (; key + kKeyTile <= pass.end; key += kKeyTile) {
    if (pass.fetcher != nullptr) pass.fetcher->advance(kKeyTile * pass.fetcher->key_bytes);
    score_tile<T, kQueries, kKeyTile>(s, k_rows, pass.first, key);
  }
  for (; key < pass.end; ++key) score_tile<T, kQueries, 1>(s, k_rows, pass.first, key);
}
