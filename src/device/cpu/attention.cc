// Paged attention: which queries share a pass over the keys, and on which threads. The arithmetic
// is in kernel_attention.inc.h; nothing here changes the bits of a row.
#include <vector>

#include "device/cpu/cpu_operators.h"
#include "device/cpu/kv_view.h"

namespace hisparse::device::cpu {
namespace {

// Segments of one query group whose partial results are held at a time when threads share a group.
constexpr std::int64_t kWaveSegments = 64;
// Fewer tasks per thread than this, and long sequences, and the segments are shared out instead.
constexpr std::int64_t kTasksPerThread = 4;
constexpr std::int64_t kLongSegments = 4;
// Multiplications that are worth waking another thread.
constexpr std::int64_t kInlineProducts = 32768;

// Up to kMaxQueries queries that read the same KV head of the same sequence.
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
    rows_per_block_ = std::max<std::int64_t>(1, kMaxQueries / heads_per_kv_);
    head_blocks_ = (heads_per_kv_ + heads_per_group_ - 1) / heads_per_group_;
    row_blocks_ = (params.placement.rows + rows_per_block_ - 1) / rows_per_block_;
  }

  void run() const {
    const std::int64_t tasks = row_blocks_ * params_.pages.kv_heads * head_blocks_;
    const std::int64_t threads = context_.pool.threads();
    const auto serial = [&](std::int64_t task) {
      run_task(task, [&](const QueryGroup& group) { attend_serial(group); });
    };
    if (products_at_most(kInlineProducts)) {
      for (std::int64_t task = 0; task < tasks; ++task) serial(task);
    } else if (threads > 1 && tasks < kTasksPerThread * threads && is_long()) {
      for (std::int64_t task = 0; task < tasks; ++task) {
        run_task(task, [&](const QueryGroup& group) { attend_shared(group); });
      }
    } else {
      context_.pool.parallel_for(tasks, std::ref(serial));
    }
  }

 private:
  std::int64_t position(std::int64_t row) const {
    return pointer_to(params_.placement.positions)[row];
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

  // A task is a block of rows for some heads of one KV head; its rows of one sequence form a group.
  template <typename Attend>
  void run_task(std::int64_t task, const Attend& attend) const {
    const std::int64_t row_block = task / (params_.pages.kv_heads * head_blocks_);
    const std::int64_t rest = task % (params_.pages.kv_heads * head_blocks_);
    const std::int64_t kv_head = rest / head_blocks_;
    const std::int64_t first_head = rest % head_blocks_ * heads_per_group_;
    const std::int64_t last_head = std::min(heads_per_kv_, first_head + heads_per_group_);
    const std::int64_t first_row = row_block * rows_per_block_;
    const std::int64_t last_row = std::min(params_.placement.rows, first_row + rows_per_block_);
    const std::int32_t* slots = pointer_to(params_.placement.sequence_slots);
    QueryGroup group;
    for (std::int64_t row = first_row; row < last_row; ++row) {
      if (group.count > 0 && slots[row] != group.slot) {
        attend(group);
        group = {};
      }
      group.slot = slots[row];
      group.kv_head = static_cast<int>(kv_head);
      for (std::int64_t head = first_head; head < last_head; ++head) {
        add_query(group, row, kv_head * heads_per_kv_ + head);
      }
    }
    attend(group);
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

  // partials: [kMaxQueries, partial_size_]; those of queries that do not reach the segment are left
  // alone.
  void attend_segment(const QueryGroup& group, std::int64_t segment, float* partials) const {
    const void* k_rows[kSegmentTokens];
    const void* v_rows[kSegmentTokens];
    SegmentAttention job = {
        .k_rows = k_rows,
        .v_rows = v_rows,
        .query_count = group.count,
        .head_dim = params_.pages.head_dim,
        .scale = params_.scale,
        .element = params_.pages.dtype == base::DType::kBF16 ? Element::kBF16 : Element::kF32};
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
  void attend_serial(const QueryGroup& group) const {
    thread_local std::vector<float> memory;
    float* states = scratch(memory, 2 * kMaxQueries * partial_size_);
    float* partials = states + kMaxQueries * partial_size_;
    for (std::int64_t segment = 0; segment < group.segments; ++segment) {
      attend_segment(group, segment, partials);
      merge_segment(group, segment, partials, states);
    }
    finish(group, states);
  }

  // The segments on all threads, a wave at a time; merged in order on this one.
  void attend_shared(const QueryGroup& group) const {
    thread_local std::vector<float> memory;
    const std::int64_t group_size = kMaxQueries * partial_size_;
    float* states = scratch(memory, (1 + kWaveSegments) * group_size);
    float* partials = states + group_size;
    for (std::int64_t first = 0; first < group.segments; first += kWaveSegments) {
      const std::int64_t count = std::min(kWaveSegments, group.segments - first);
      const auto attend = [&](std::int64_t i) {
        attend_segment(group, first + i, partials + i * group_size);
      };
      context_.pool.parallel_for(count, std::ref(attend));
      for (std::int64_t i = 0; i < count; ++i) {
        merge_segment(group, first + i, partials + i * group_size, states);
      }
    }
    finish(group, states);
  }

  const OperatorContext& context_;
  const PagedAttentionParams& params_;
  const KvView view_;
  const std::int64_t heads_per_kv_;
  const std::int64_t partial_size_;
  std::int64_t heads_per_group_ = 0;
  std::int64_t rows_per_block_ = 0;
  std::int64_t head_blocks_ = 0;
  std::int64_t row_blocks_ = 0;
};

}  // namespace

void run_paged_attention(const OperatorContext& context, const PagedAttentionParams& params) {
  if (params.placement.rows == 0) return;
  Attention(context, params).run();
}

}  // namespace hisparse::device::cpu
