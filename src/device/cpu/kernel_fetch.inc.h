// Brings rows to the caches while others are worked on. A processor drops prefetches that come
// faster than memory answers, and the rows are then missed for their whole latency: so the lines
// are spread over all the work of a segment. The exponentials read nothing, and keys and values
// take less time than memory needs for them: part of their bytes is fetched meanwhile.
constexpr int kParts = 8;
constexpr int kKeyParts = 7;    // of the bytes of a key, while it is read
constexpr int kValueParts = 6;  // of those of a value

struct Fetcher {
  const char* at = nullptr;  // what comes next
  const char* end = nullptr;
  FetchedRuns behind;   // that
  int credit = 0;       // bytes that may be fetched
  int key_bytes = 0;    // for each key of a head that is read
  int value_bytes = 0;  // for each vector of a value
  int score_bytes = 0;  // for each vector of scores that is exponentiated

  inline void advance(int bytes) {
    const char* line = at;
    int left = credit + bytes;
    for (; left >= kLineBytes; left -= kLineBytes, line += kLineBytes) {
      if (line >= end) {
        if (behind.count == 0) break;
        line = behind.runs->begin;
        end = behind.runs->end;
        ++behind.runs;
        --behind.count;
      }
      __builtin_prefetch(line);
    }
    at = line;
    credit = left;
  }
};

inline Fetcher make_fetcher(const SegmentAttention* heads, int count, const FetchedRuns& runs) {
  int queries = 0;
  for (int h = 0; h < count; ++h) queries += heads[h].query_count;
  const int element = heads[0].element == Element::kF32 ? 4 : 2;
  const int head_bytes = heads[0].head_dim * element;
  Fetcher fetcher;
  fetcher.behind = runs;
  fetcher.key_bytes = head_bytes * kKeyParts / kParts;
  fetcher.value_bytes = kWideLanes * element * kValueParts / kParts;
  fetcher.score_bytes =
      count * head_bytes * (2 * kParts - kKeyParts - kValueParts) / kParts * kWideLanes / queries;
  return fetcher;
}
