// Paged attention: which queries share a pass over the keys, and on which threads. The arithmetic
// is in kernel_attention.inc.h; nothing here changes the bits of a row.
#include <span>
#include <vector>

#include "device/cpu/cpu_operators.h"
#include "device/cpu/kv_view.h"

namespace hisparse::device::cpu {
namespace {

// Segments whose partial results are held at a time when threads share one row's work.
constexpr std::int64_t kWaveSegments = 64;
// Fewer tasks per thread than this, and long sequences, and the segments are shared out instead.
constexpr std::int64_t kTasksPerThread = 4;
constexpr std::int64_t kLongSegments = 4;
// Multiplications that are worth waking another thread.
constexpr std::int64_t kInlineProducts = 32768;

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
  std::int64_t segments = 0;
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
    const auto tasks = static_cast<std::int64_t>(groups.size()) * tasks_per_row_group();
    const std::int64_t threads = context_.pool.threads();
    // Not by name: on another thread that would be another vector.
    const auto attend_task = [this, row_groups = groups.data()](std::int64_t task) {
      const RowGroup& rows = row_groups[task / tasks_per_row_group()];
      attend(make_group(rows, task % tasks_per_row_group()));
    };
    if (products_at_most(kInlineProducts)) {
      for (std::int64_t task = 0; task < tasks; ++task) attend_task(task);
    } else if (threads > 1 && tasks < kTasksPerThread * threads && is_long()) {
      for (const RowGroup& rows : groups) attend_shared(rows);
    } else {
      context_.pool.parallel_for(tasks, std::ref(attend_task));
    }
  }

 private:
  std::int64_t position(std::int64_t row) const {
    return pointer_to(params_.placement.positions)[row];
  }

  std::int64_t tasks_per_row_group() const { return params_.pages.kv_heads * head_groups_; }

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

  // `task`: a KV head, and within it a group of the heads that read it.
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
    group.segments = std::max(group.segments, position(row) / kSegmentTokens + 1);
    ++group.count;
  }

  static int tokens_in(const QueryGroup& group, int query, std::int64_t segment) {
    const std::int64_t tokens = group.positions[query] + 1 - segment * kSegmentTokens;
    return static_cast<int>(std::clamp<std::int64_t>(tokens, 0, kSegmentTokens));
  }

  // partials: [group.count, partial_size_]; those of queries that do not reach the segment are left
  // alone.
  void attend_segment(const QueryGroup& group, std::int64_t segment, float* partials) const {
    thread_local std::vector<float> memory;
    const void* k_rows[kSegmentTokens];
    const void* v_rows[kSegmentTokens];
    SegmentAttention job;
    job.k_rows = k_rows;
    job.v_rows = v_rows;
    job.query_count = group.count;
    job.head_dim = params_.pages.head_dim;
    job.scale = params_.scale;
    job.element = params_.pages.dtype == base::DType::kBF16 ? Element::kBF16 : Element::kF32;
    job.scratch = scratch(memory, attention_scratch(job.head_dim));
    int tokens = 0;
    for (int i = 0; i < group.count; ++i) {
      job.queries[i] = group.queries[i];
      job.partials[i] = partials + i * partial_size_;
      job.counts[i] = tokens_in(group, i, segment);
      tokens = std::max(tokens, job.counts[i]);
    }
    view_.locate(group.slot, segment * kSegmentTokens, tokens, group.kv_head,
                 {.k = k_rows, .v = v_rows});
    context_.kernels.attend_segment(job);
  }

  void merge_segment(const QueryGroup& group, std::int64_t segment, const float* partials,
                     float* states) const {
    for (int i = 0; i < group.count; ++i) {
      const float* partial = partials + i * partial_size_;
      float* state = states + i * partial_size_;
      if (segment == 0) {
        std::copy(partial, partial + partial_size_, state);
      } else if (tokens_in(group, i, segment) > 0) {
        context_.kernels.merge_partial(state, partial, params_.pages.head_dim);
      }
    }
  }

  void finish(const QueryGroup& group, const float* states) const {
    for (int i = 0; i < group.count; ++i) {
      context_.kernels.finish_attention(states + i * partial_size_, group.outs[i],
                                        params_.pages.head_dim);
    }
  }

  // On this thread alone.
  void attend(const QueryGroup& group) const {
    thread_local std::vector<float> memory;
    float* states = scratch(memory, 2 * group.count * partial_size_);
    float* partials = states + group.count * partial_size_;
    for (std::int64_t segment = 0; segment < group.segments; ++segment) {
      attend_segment(group, segment, partials);
      merge_segment(group, segment, partials, states);
    }
    finish(group, states);
  }

  // The segments on all threads, a wave at a time, all KV heads of a segment on one of them: their
  // rows are neighbours in memory. Merged in order.
  void attend_shared(const RowGroup& rows) const {
    thread_local std::vector<float> memory;
    thread_local std::vector<QueryGroup> groups;
    groups.clear();
    for (std::int64_t task = 0; task < tasks_per_row_group(); ++task) {
      groups.push_back(make_group(rows, task));
    }
    const std::int64_t segments = groups.front().segments;
    const std::int64_t segment_size = params_.heads * rows.count * partial_size_;
    float* states = scratch(memory, (1 + kWaveSegments) * segment_size);
    float* partials = states + segment_size;
    for (std::int64_t first = 0; first < segments; first += kWaveSegments) {
      const std::int64_t count = std::min(kWaveSegments, segments - first);
      // Not by name: on another thread that would be another vector.
      const auto attend_all = [&, shared = std::span<const QueryGroup>(groups)](std::int64_t i) {
        float* target = partials + i * segment_size;
        for (const QueryGroup& group : shared) {
          attend_segment(group, first + i, target);
          target += group.count * partial_size_;
        }
      };
      context_.pool.parallel_for(count, std::ref(attend_all));
      for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t at = 0;
        for (const QueryGroup& group : groups) {
          merge_segment(group, first + i, partials + i * segment_size + at, states + at);
          at += group.count * partial_size_;
        }
      }
    }
    const float* state = states;
    for (const QueryGroup& group : groups) {
      finish(group, state);
      state += group.count * partial_size_;
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
