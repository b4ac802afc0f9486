// The matrix products: packs the rows once for all weights that share them, then shares out panels.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "device/cpu/cpu_memory.h"
#include "device/cpu/cpu_operators.h"
#include "device/cpu/packed_weight.h"

namespace hisparse::device::cpu {
namespace {

// Products that are worth a task: a few microseconds.
constexpr std::int64_t kProductsPerTask = 65536;
// The largest range of panels is this part of what a thread has to do.
constexpr std::int64_t kRangesPerThread = 2;
// Packed rows that share each panel while it is in the caches; they stay in the L3 cache.
constexpr std::int64_t kTogetherBytes = std::int64_t{10} << 20;
// Rows of a block are a multiple of all tile sizes.
constexpr std::int64_t kBlockMultiple = 12;
static_assert(kMaxProductRows % kBlockMultiple == 0);

const PackedWeight& packed(const LinearProduct& product) {
  return static_cast<const PackedWeight&>(*product.weight);
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// One call of run_linear. Lives on its caller's stack.
class LinearRun final {
 public:
  LinearRun(const OperatorContext& context, const LinearParams& params)
      : context_(context), params_(params), k_(params.products.front().weight->cols()) {
    while (count_ < kMaxProducts && params.products[count_].weight != nullptr) {
      HS_CHECK(params.products[count_].weight->cols() == k_);
      ++count_;
    }
  }

  void run() {
    // Usually all weights want the same form of the rows.
    for (int begin = 0; begin < count_;) {
      const Activation activation = packed(params_.products[begin]).activation();
      int end = begin + 1;
      while (end < count_ && packed(params_.products[end]).activation() == activation) ++end;
      pack(activation);
      multiply(begin, end, packed_row_bytes(activation, k_));
      begin = end;
    }
  }

 private:
  void pack(Activation activation) {
    thread_local std::vector<std::byte> memory;
    const std::int64_t row_bytes = packed_row_bytes(activation, k_);
    const int rows = tile_rows(activation);
    tiles_ = scratch(memory, params_.rows * row_bytes);
    for_chunks(context_.pool, ceil_div(params_.rows, rows), rows_per_chunk(k_ * rows),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t tile = begin; tile < end; ++tile) {
                   const std::int64_t row = tile * rows;
                   RowTile job;
                   job.activation = activation;
                   job.k = k_;
                   job.count = static_cast<int>(std::min<std::int64_t>(rows, params_.rows - row));
                   job.out = tiles_ + row * row_bytes;
                   pack_tile(job, row);
                 }
               });
  }

  void pack_tile(RowTile& job, std::int64_t first_row) const {
    thread_local std::vector<float> memory;
    const float* in = pointer_to(params_.in) + first_row * k_;
    const float* operand = pointer_to(params_.operand);
    float* prepared = scratch(memory, job.count * k_);
    for (int r = 0; r < job.count; ++r, in += k_, prepared += k_) {
      job.rows[r] = prepared;
      switch (params_.input) {
        case LinearInput::kPlain:
          job.rows[r] = in;
          break;
        case LinearInput::kRmsNorm:
          context_.kernels.rms_norm(in, operand, prepared, k_, params_.epsilon);
          break;
        case LinearInput::kSiluMul:
          context_.kernels.silu_mul(in, operand + (first_row + r) * k_, prepared, k_);
          break;
      }
    }
    context_.kernels.pack_rows(job);
  }

  // Panels [first, last) of a product.
  struct PanelRange {
    int product = 0;
    std::int64_t first = 0;
    std::int64_t last = 0;
  };

  // Cuts the panels of products [begin, end). One row block reads its weights from memory, best in
  // long runs: ranges are long in front, and short in the end so that the threads finish together.
  // Several row blocks share ranges that stay in the caches.
  std::vector<PanelRange>& cut_panels(int begin, int end, std::int64_t blocks) const {
    thread_local std::vector<PanelRange> ranges;
    const std::int64_t products = std::min<std::int64_t>(params_.rows, kMaxProductRows) * k_;
    const std::int64_t least =
        std::max<std::int64_t>(1, kProductsPerTask / (products * kPanelColumns));
    const std::int64_t parts = kRangesPerThread * context_.pool.threads();
    std::int64_t left = 0;
    for (int i = begin; i < end; ++i) left += packed(params_.products[i]).panels();
    ranges.clear();
    for (int i = begin; i < end; ++i) {
      const std::int64_t panels = packed(params_.products[i]).panels();
      for (std::int64_t first = 0; first < panels;) {
        const std::int64_t count = blocks > 1 ? least : std::max(least, left / parts);
        const std::int64_t last = std::min(panels, first + count);
        ranges.push_back({.product = i, .first = first, .last = last});
        left -= last - first;
        first = last;
      }
    }
    return ranges;
  }

  void multiply(int begin, int end, std::int64_t row_bytes) const {
    const std::int64_t blocks = ceil_div(params_.rows, kMaxProductRows);
    // Of equal size, in whole tiles.
    const std::int64_t block_rows =
        ceil_div(ceil_div(params_.rows, blocks), kBlockMultiple) * kBlockMultiple;
    const std::vector<PanelRange>& cut = cut_panels(begin, end, blocks);
    const PanelRange* ranges = cut.data();
    const auto range_count = static_cast<std::int64_t>(cut.size());
    const std::int64_t together =
        std::clamp<std::int64_t>(kTogetherBytes / (block_rows * row_bytes), 1, blocks);
    for_chunks(context_.pool, range_count * blocks, 1, [&](std::int64_t task, std::int64_t) {
      const std::int64_t first_block = task / (range_count * together) * together;
      const std::int64_t sharing = std::min(together, blocks - first_block);
      const std::int64_t in_group = task - first_block * range_count;
      const PanelRange& range = ranges[in_group / sharing];
      const std::int64_t first_row = (first_block + in_group % sharing) * block_rows;
      const Rows rows = {.first = first_row,
                         .count = std::min(block_rows, params_.rows - first_row)};
      for (std::int64_t panel = range.first; panel < range.last; ++panel) {
        multiply_panel(params_.products[range.product], panel, rows,
                       tiles_ + rows.first * row_bytes);
      }
    });
  }

  struct Rows {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  void multiply_panel(const LinearProduct& product, std::int64_t panel, const Rows& rows,
                      const std::byte* tiles) const {
    const PackedWeight& weight = packed(product);
    const std::int64_t column = panel * kPanelColumns;
    context_.kernels.multiply_panel(
        {.panel = weight.panel(panel),
         .tiles = tiles,
         .out = pointer_to(product.out) + rows.first * weight.rows() + column,
         .k = k_,
         .out_stride = weight.rows(),
         .rows = static_cast<int>(rows.count),
         .columns = static_cast<int>(std::min<std::int64_t>(kPanelColumns, weight.rows() - column)),
         .element = weight.element(),
         .activation = weight.activation(),
         .result =
             params_.result == LinearResult::kAdd ? ProductResult::kAdd : ProductResult::kStore});
  }

  const OperatorContext& context_;
  const LinearParams& params_;
  const std::int64_t k_;
  int count_ = 0;
  std::byte* tiles_ = nullptr;
};

}  // namespace

void run_linear(const OperatorContext& context, const LinearParams& params) {
  if (params.rows > 0) LinearRun(context, params).run();
}

}  // namespace hisparse::device::cpu
