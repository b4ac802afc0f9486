// Paged attention: which queries share a pass over the keys, and on which threads. The arithmetic
// is in kernel_attention.inc.h; nothing here changes the bits of a row.
#include <algorithm>
#include <vector>

#include "base/cache_line.h"
#include "device/cpu/cpu_operators.h"
#include "device/cpu/kv_view.h"

namespace hisparse::device::cpu {
namespace {

// Segments whose partial results are held at a time when threads share one row's work.
constexpr std::int64_t kWaveSegments = 128;
// Fewer tasks per thread than this are split further.
constexpr std::int64_t kTasksPerThread = 4;
constexpr std::int64_t kLongSegments = 4;
// Tokens whose keys are fetched before their segment: more than a kernel passes over at a time.
constexpr int kTokensAhead = 64;
constexpr std::size_t kFirstKeyBytes = 24576;
// Multiplications that are worth waking another thread.
constexpr std::int64_t kInlineProducts = 32768;
// The same for results of segments.
constexpr std::int64_t kInlineMerges = 64;

// Neighbouring rows of one sequence.
struct RowGroup {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Queries that read the same KV head of the same sequence: some heads of a row group.
struct QueryGroup {
  const float* queries[kMaxQueries] = {};
  float* outs[kMaxQueries] = {};
  std::int64_t positions[kMaxQueries] = {};
  int count = 0;
  std::int32_t slot = 0;
  int kv_head = 0;
  std::int64_t tokens = 0;  // that the last of them sees
  std::int64_t segments = 0;
};

// [begin, end) of tasks or segments.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

class Attention final {
 public:
  Attention(const OperatorContext& context, const PagedAttentionParams& params)
      : context_(context),
        params_(params),
        view_(params.pages),
        heads_per_kv_(params.heads / params.pages.kv_heads),
        partial_size_(kPartialHeader + params.pages.head_dim) {
    HS_CHECK(params.heads % params.pages.kv_heads == 0);
    heads_per_group_ = std::min<std::int64_t>(heads_per_kv_, kMaxQueries);
    head_groups_ = (heads_per_kv_ + heads_per_group_ - 1) / heads_per_group_;
  }

  void run() const {
    thread_local std::vector<RowGroup> groups;
    find_row_groups(groups);
    const auto count = static_cast<std::int64_t>(groups.size());
    const std::int64_t threads = context_.pool.threads();
    // Not by name: on another thread that would be another vector.
    const RowGroup* rows = groups.data();
    const auto all_heads = [this, rows](std::int64_t i) { attend(rows[i], all_tasks()); };
    const auto one_task = [this, rows](std::int64_t i) {
      const std::int64_t task = i % tasks_per_row_group();
      attend(rows[i / tasks_per_row_group()], {.begin = task, .end = task + 1});
    };
    if (products_at_most(kInlineProducts)) {
      for (std::int64_t i = 0; i < count; ++i) all_heads(i);
    } else if (count >= kTasksPerThread * threads || threads == 1) {
      context_.pool.parallel_for(count, all_heads);
    } else if (is_long()) {
      for (std::int64_t i = 0; i < count; ++i) attend_shared(rows[i]);
    } else {
      context_.pool.parallel_for(count * tasks_per_row_group(), one_task);
    }
  }

 private:
  std::int64_t position(std::int64_t row) const {
    return pointer_to(params_.placement.positions)[row];
  }

  // A task is a KV head, and within it a group of the heads that read it.
  std::int64_t tasks_per_row_group() const { return params_.pages.kv_heads * head_groups_; }
  Range all_tasks() const { return {.begin = 0, .end = tasks_per_row_group()}; }

  // Runs of rows of one sequence, cut where their queries are as many as a pass takes.
  void find_row_groups(std::vector<RowGroup>& groups) const {
    const std::int32_t* slots = pointer_to(params_.placement.sequence_slots);
    const std::int64_t most = std::max<std::int64_t>(1, kMaxQueries / heads_per_kv_);
    groups.clear();
    for (std::int64_t row = 0; row < params_.placement.rows; ++row) {
      if (!groups.empty() && groups.back().count < most && slots[row] == slots[row - 1]) {
        ++groups.back().count;
      } else {
        groups.push_back({.first = row, .count = 1});
      }
    }
  }

  bool products_at_most(std::int64_t limit) const {
    std::int64_t tokens = 0;
    for (std::int64_t r = 0; r < params_.placement.rows && tokens <= limit; ++r) {
      tokens += position(r) + 1;
    }
    return tokens * params_.heads * params_.pages.head_dim <= limit;
  }

  bool is_long() const {
    for (std::int64_t r = 0; r < params_.placement.rows; ++r) {
      if (position(r) >= kLongSegments * kSegmentTokens) return true;
    }
    return false;
  }

  QueryGroup make_group(const RowGroup& rows, std::int64_t task) const {
    const std::int64_t kv_head = task / head_groups_;
    const std::int64_t first_head = task % head_groups_ * heads_per_group_;
    const std::int64_t last_head = std::min(heads_per_kv_, first_head + heads_per_group_);
    QueryGroup group;
    group.slot = pointer_to(params_.placement.sequence_slots)[rows.first];
    group.kv_head = static_cast<int>(kv_head);
    for (std::int64_t row = rows.first; row < rows.first + rows.count; ++row) {
      for (std::int64_t head = first_head; head < last_head; ++head) {
        add_query(group, row, kv_head * heads_per_kv_ + head);
      }
    }
    return group;
  }

  void add_query(QueryGroup& group, std::int64_t row, std::int64_t head) const {
    const std::int64_t at = (row * params_.heads + head) * params_.pages.head_dim;
    HS_CHECK(position(row) >= 0);
    group.queries[group.count] = pointer_to(params_.q) + at;
    group.outs[group.count] = pointer_to(params_.out) + at;
    group.positions[group.count] = position(row);
    group.tokens = std::max(group.tokens, position(row) + 1);
    group.segments = std::max(group.segments, position(row) / kSegmentTokens + 1);
    ++group.count;
  }

  // Tokens of the segment that any of the queries sees.
  static int tokens_of(const QueryGroup& group, std::int64_t segment) {
    return static_cast<int>(
        std::min<std::int64_t>(group.tokens - segment * kSegmentTokens, kSegmentTokens));
  }
  static int tokens_in(const QueryGroup& group, int query, std::int64_t segment) {
    const std::int64_t tokens = group.positions[query] + 1 - segment * kSegmentTokens;
    return static_cast<int>(std::clamp<std::int64_t>(tokens, 0, kSegmentTokens));
  }

  // Query groups of the same rows; the results of a segment lie one group after the other.
  struct Heads {
    const QueryGroup* groups = nullptr;
    std::int64_t count = 0;
    std::int64_t size = 0;  // values of one segment's results over all groups
  };
  Heads make_heads(const RowGroup& rows, const Range& tasks,
                   std::vector<QueryGroup>& memory) const {
    memory.clear();
    std::int64_t size = 0;
    for (std::int64_t task = tasks.begin; task < tasks.end; ++task) {
      memory.push_back(make_group(rows, task));
      size += memory.back().count * partial_size_;
    }
    return {.groups = memory.data(), .count = tasks.end - tasks.begin, .size = size};
  }

  // Where the rows of a segment lie, and what is read of them and of the first keys of the next
  // one. Several heads are neighbours in a row, so that the rows of a page are a single run.
  struct Rows {
    const void* k[kSegmentTokens];
    const void* v[kSegmentTokens];
    FetchedRun runs[2 * kSegmentTokens + kTokensAhead];
    int run_count = 0;
  };

  void locate(const Heads& heads, std::int64_t segment, Rows& rows) const {
    const QueryGroup& group = heads.groups[0];
    const int tokens = tokens_of(group, segment);
    const std::int64_t first = segment * kSegmentTokens;
    const std::int64_t row_bytes = view_.row_bytes();
    std::int64_t t = 0;
    view_.for_parts(group.slot, first, tokens,
                    [&](const std::byte* k, const std::byte* v, std::int64_t count) {
                      for (std::int64_t i = 0; i < count; ++i, ++t) {
                        rows.k[t] = k + i * row_bytes;
                        rows.v[t] = v + i * row_bytes;
                      }
                    });
    // The first keys are read before they could be fetched.
    const int skipped = std::min(kTokensAhead, tokens);
    const auto add_run = [&](const FetchedRun& run) { rows.runs[rows.run_count++] = run; };
    const auto add_keys = [&](const std::byte* k, const std::byte*, std::int64_t count) {
      for_runs(heads, k, count, add_run);
    };
    view_.for_parts(group.slot, first + skipped, tokens - skipped, add_keys);
    view_.for_parts(group.slot, first, tokens,
                    [&](const std::byte*, const std::byte* v, std::int64_t count) {
                      for_runs(heads, v, count, add_run);
                    });
    if (segment + 1 >= segments_of(heads).end) return;
    view_.for_parts(group.slot, first + kSegmentTokens,
                    std::min(kTokensAhead, tokens_of(group, segment + 1)), add_keys);
  }

  // For a segment that no other one comes before: as much as the L1 cache holds beside the rest.
  void fetch_first_keys(const Heads& heads, std::int64_t segment) const {
    std::size_t left = kFirstKeyBytes;
    const QueryGroup& group = heads.groups[0];
    view_.for_parts(
        group.slot, segment * kSegmentTokens, std::min(kTokensAhead, tokens_of(group, segment)),
        [&](const std::byte* k, const std::byte*, std::int64_t count) {
          for_runs(heads, k, count, [&](const FetchedRun& run) {
            const std::size_t bytes =
                std::min<std::size_t>(left, static_cast<std::size_t>(run.end - run.begin));
            base::fetch_lines(run.begin, bytes);
            left -= bytes;
          });
        });
  }

  // `count` rows from `row` on, as far as the heads read them.
  template <typename Visit>
  void for_runs(const Heads& heads, const std::byte* row, std::int64_t count,
                const Visit& visit) const {
    const std::int64_t first_head = heads.groups[0].kv_head;
    const std::int64_t heads_read = heads.groups[heads.count - 1].kv_head - first_head + 1;
    std::int64_t bytes = heads_read * view_.head_bytes();
    if (heads_read == params_.pages.kv_heads) {
      bytes *= count;
      count = 1;
    }
    const char* begin = reinterpret_cast<const char*>(row) + first_head * view_.head_bytes();
    for (; count > 0; --count, begin += view_.row_bytes()) {
      visit(FetchedRun{.begin = begin, .end = begin + bytes});
    }
  }

  // partials: the results of all groups, one after the other; those of queries that do not reach
  // the segment are left alone.
  void attend_segment(const Heads& heads, std::int64_t segment, float* partials) const {
    thread_local std::vector<SegmentAttention> jobs;
    thread_local std::vector<float> memory;
    const std::int64_t scratch_size = attention_scratch(params_.pages.head_dim);
    float* own = scratch(memory, scratch_size * heads.count);
    SegmentAttention* job = scratch(jobs, heads.count);
    thread_local Rows rows;  // large: not to be cleared each time
    rows.run_count = 0;
    locate(heads, segment, rows);
    for (std::int64_t g = 0; g < heads.count; ++g) {
      const QueryGroup& group = heads.groups[g];
      prepare(group, segment, partials, job[g]);
      job[g].k_rows = rows.k;
      job[g].v_rows = rows.v;
      job[g].scratch = own + g * scratch_size;
      partials += group.count * partial_size_;
    }
    context_.kernels.attend_segment(job, static_cast<int>(heads.count),
                                    {.runs = rows.runs, .count = rows.run_count});
  }

  void prepare(const QueryGroup& group, std::int64_t segment, float* partials,
               SegmentAttention& job) const {
    job.head_offset = group.kv_head * view_.head_bytes();
    job.query_count = group.count;
    job.head_dim = params_.pages.head_dim;
    job.scale = params_.scale;
    job.element = params_.pages.dtype == base::DType::kBF16 ? Element::kBF16 : Element::kF32;
    for (int i = 0; i < group.count; ++i) {
      job.queries[i] = group.queries[i];
      job.partials[i] = partials + i * partial_size_;
      job.counts[i] = tokens_in(group, i, segment);
    }
  }

  // Segment `segment` of query `query`, into its state.
  void merge_query(const QueryGroup& group, int query, std::int64_t segment, const float* partial,
                   float* state) const {
    if (segment == 0) {
      std::copy(partial, partial + partial_size_, state);
    } else if (tokens_in(group, query, segment) > 0) {
      context_.kernels.merge_partial(state, partial, params_.pages.head_dim);
    }
  }

  void finish(const QueryGroup& group, const float* states) const {
    for (int i = 0; i < group.count; ++i) {
      context_.kernels.finish_attention(states + i * partial_size_, group.outs[i],
                                        params_.pages.head_dim);
    }
  }

  void merge_heads(const Heads& heads, std::int64_t segment, const float* partials,
                   float* states) const {
    for (std::int64_t g = 0; g < heads.count; ++g) {
      const QueryGroup& group = heads.groups[g];
      for (int i = 0; i < group.count; ++i, partials += partial_size_, states += partial_size_) {
        merge_query(group, i, segment, partials, states);
      }
    }
  }
  void finish_heads(const Heads& heads, const float* states) const {
    for (std::int64_t g = 0; g < heads.count; ++g) {
      finish(heads.groups[g], states);
      states += heads.groups[g].count * partial_size_;
    }
  }

  // Segments of this call that the last of the rows sees.
  Range segments_of(const Heads& heads) const {
    return {.begin = params_.window.first,
            .end = std::min(params_.window.end, heads.groups[0].segments)};
  }

  float* state_of(const QueryGroup& group, int query) const {
    const std::int64_t at = (group.outs[query] - pointer_to(params_.out)) / params_.pages.head_dim;
    return pointer_to(params_.window.state) + at * partial_size_;
  }

  // What the windows before this one have left.
  void load_states(const Heads& heads, float* states) const {
    if (params_.window.first == 0) return;
    for (std::int64_t g = 0; g < heads.count; ++g) {
      for (int i = 0; i < heads.groups[g].count; ++i, states += partial_size_) {
        std::copy_n(state_of(heads.groups[g], i), partial_size_, states);
      }
    }
  }

  // The results, or what the next window needs.
  void leave(const Heads& heads, const float* states) const {
    if (params_.window.end >= heads.groups[0].segments) return finish_heads(heads, states);
    for (std::int64_t g = 0; g < heads.count; ++g) {
      for (int i = 0; i < heads.groups[g].count; ++i, states += partial_size_) {
        std::copy_n(states, partial_size_, state_of(heads.groups[g], i));
      }
    }
  }

  // On this thread alone.
  void attend(const RowGroup& rows, const Range& tasks) const {
    thread_local std::vector<float> memory;
    thread_local std::vector<QueryGroup> groups;
    const Heads heads = make_heads(rows, tasks, groups);
    const Range segments = segments_of(heads);
    if (segments.begin >= segments.end) return;
    float* states = scratch(memory, 2 * heads.size);
    float* partials = states + heads.size;
    load_states(heads, states);
    fetch_first_keys(heads, segments.begin);
    for (std::int64_t segment = segments.begin; segment < segments.end; ++segment) {
      attend_segment(heads, segment, partials);
      merge_heads(heads, segment, partials, states);
    }
    leave(heads, states);
  }

  // Neighbouring segments that threads share out between them, and their results.
  struct Wave {
    std::int64_t first = 0;
    std::int64_t count = 0;
    float* partials = nullptr;  // [count, heads.size]
  };

  // The segments on all threads, a wave at a time.
  void attend_shared(const RowGroup& rows) const {
    thread_local std::vector<float> memory;
    thread_local std::vector<QueryGroup> groups;
    const Heads heads = make_heads(rows, all_tasks(), groups);
    const Range segments = segments_of(heads);
    if (segments.begin >= segments.end) return;
    float* states = scratch(memory, (1 + kWaveSegments) * heads.size);
    load_states(heads, states);
    for (std::int64_t first = segments.begin; first < segments.end; first += kWaveSegments) {
      const Wave wave = {.first = first,
                         .count = std::min(kWaveSegments, segments.end - first),
                         .partials = states + heads.size};
      attend_wave(heads, wave);
      merge_wave(heads, wave, states);
    }
    leave(heads, states);
  }

  void attend_wave(const Heads& heads, const Wave& wave) const {
    context_.pool.parallel_for(wave.count, [&](std::int64_t i) {
      attend_segment(heads, wave.first + i, wave.partials + i * heads.size);
    });
  }

  // The segments of a query in their order, queries on all threads.
  void merge_wave(const Heads& heads, const Wave& wave, float* states) const {
    const std::int64_t queries = heads.size / partial_size_;
    const auto partial_bytes = static_cast<std::size_t>(partial_size_) * sizeof(float);
    const auto merge = [&](std::int64_t index) {
      const QueryGroup* group = heads.groups;
      std::int64_t query = index;
      for (; query >= group->count; ++group) query -= group->count;
      float* state = states + index * partial_size_;
      const float* partial = wave.partials + index * partial_size_;
      for (std::int64_t i = 0; i < wave.count; ++i, partial += heads.size) {
        // Many lie in the caches of other cores.
        if (i + 1 < wave.count) base::fetch_lines(partial + heads.size, partial_bytes);
        merge_query(*group, static_cast<int>(query), wave.first + i, partial, state);
      }
    };
    if (queries * wave.count <= kInlineMerges) {
      for (std::int64_t index = 0; index < queries; ++index) merge(index);
    } else {
      context_.pool.parallel_for(queries, merge);
    }
  }

  const OperatorContext& context_;
  const PagedAttentionParams& params_;
  const KvView view_;
  const std::int64_t heads_per_kv_;
  const std::int64_t partial_size_;
  std::int64_t heads_per_group_ = 0;
  std::int64_t head_groups_ = 0;
};

}  // namespace

void run_paged_attention(const OperatorContext& context, const PagedAttentionParams& params) {
  if (params.placement.rows == 0) return;
  Attention(context, params).run();
}

}  // namespace hisparse::device::cpu
