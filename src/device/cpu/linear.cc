// The matrix products: packs the rows once for all weights that share them, then shares out panels.
#include <algorithm>
#include <span>
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
// Fewer blocks of rows than these would read the weights from memory too often: where k is so long
// that they do not fit, they take one part of k after the other.
constexpr std::int64_t kBlocksTogether = 5;
constexpr std::int64_t kMostPartSteps = 4096;
constexpr std::int64_t kPartMultiple = 256;
static_assert(kPartMultiple % kGroupValues == 0);
// Sums that rest between the parts of k, in the L3 cache too.
constexpr std::int64_t kRestingBytes = std::int64_t{8} << 20;
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
    std::int64_t before = 0;  // panels of earlier ranges
  };

  // Blocks of rows of equal size, in whole tiles, and how many of them share each panel.
  struct RowBlocks {
    std::int64_t count = 0;
    std::int64_t rows = 0;      // of each but the last
    std::int64_t together = 0;  // blocks
    std::int64_t part = 0;      // of k
  };

  // Cuts the panels of products [begin, end). One row block reads its weights from memory, best in
  // long runs: ranges are long in front, and short in the end so that the threads finish together.
  // Several row blocks share ranges that stay in the caches.
  std::vector<PanelRange>& cut_panels(int begin, int end, std::int64_t blocks) const {
    thread_local std::vector<PanelRange> ranges;
    const std::int64_t products = std::min<std::int64_t>(params_.rows, kMaxProductRows) * k_;
    const std::int64_t least =
        std::max<std::int64_t>(1, kProductsPerTask / (products * kPanelColumns));
    const std::int64_t shares = kRangesPerThread * context_.pool.threads();
    std::int64_t total = 0;
    std::int64_t before = 0;
    for (int i = begin; i < end; ++i) total += packed(params_.products[i]).panels();
    ranges.clear();
    for (int i = begin; i < end; ++i) {
      const std::int64_t panels = packed(params_.products[i]).panels();
      for (std::int64_t first = 0; first < panels;) {
        const std::int64_t count = blocks > 1 ? least : std::max(least, (total - before) / shares);
        const std::int64_t last = std::min(panels, first + count);
        ranges.push_back({.product = i, .first = first, .last = last, .before = before});
        before += last - first;
        first = last;
      }
    }
    return ranges;
  }

  RowBlocks cut_rows(std::int64_t row_bytes) const {
    RowBlocks blocks;
    blocks.count = ceil_div(params_.rows, kMaxProductRows);
    blocks.rows = ceil_div(ceil_div(params_.rows, blocks.count), kBlockMultiple) * kBlockMultiple;
    const std::int64_t block_bytes = blocks.rows * row_bytes;
    blocks.together =
        std::min(blocks.count, std::max(kTogetherBytes / block_bytes, kBlocksTogether));
    // As many in every pass.
    blocks.together = ceil_div(blocks.count, ceil_div(blocks.count, blocks.together));
    blocks.part = k_;
    const std::int64_t parts = ceil_div(blocks.together * block_bytes, kTogetherBytes);
    if (blocks.count > 1 && parts > 1) {
      const std::int64_t equal = ceil_div(k_, std::max(parts, ceil_div(k_, kMostPartSteps)));
      blocks.part = ceil_div(equal, kPartMultiple) * kPartMultiple;
    }
    return blocks;
  }

  // What the threads share out between them: blocks of rows meet ranges of panels in a part of k.
  struct Pass {
    std::span<const PanelRange> ranges;
    std::int64_t first_row = 0;
    std::int64_t blocks = 0;
    std::int64_t block_rows = 0;
    std::int64_t row_bytes = 0;
    PartOfK part;  // with the sums of all panels, [blocks * block_rows, kPanelColumns] each
  };

  void multiply(int begin, int end, std::int64_t row_bytes) const {
    const RowBlocks blocks = cut_rows(row_bytes);
    const std::span<const PanelRange> ranges = cut_panels(begin, end, blocks.count);
    for (std::int64_t first = 0; first < blocks.count; first += blocks.together) {
      const Pass pass = {.ranges = ranges,
                         .first_row = first * blocks.rows,
                         .blocks = std::min(blocks.together, blocks.count - first),
                         .block_rows = blocks.rows,
                         .row_bytes = row_bytes,
                         .part = {.end = k_}};
      if (blocks.part < k_) {
        multiply_in_parts(pass, blocks.part);
      } else {
        run_pass(pass);
      }
    }
  }

  // Takes no more panels at a time than may have their sums rest.
  void multiply_in_parts(Pass pass, std::int64_t steps) const {
    thread_local std::vector<float> memory;
    const std::int64_t panel_sums = pass.blocks * pass.block_rows * kPanelColumns;
    const std::int64_t most = kRestingBytes / (panel_sums * std::int64_t{sizeof(float)});
    for (std::span<const PanelRange> left = pass.ranges; !left.empty();) {
      std::size_t count = 1;
      while (count < left.size() && panels_of(left.first(count + 1)) <= most) ++count;
      pass.ranges = left.first(count);
      left = left.subspan(count);
      pass.part.sums = scratch(memory, panels_of(pass.ranges) * panel_sums);
      for (std::int64_t begin = 0; begin < k_; begin += steps) {
        pass.part.begin = begin;
        pass.part.end = std::min(k_, begin + steps);
        run_pass(pass);
      }
    }
  }

  static std::int64_t panels_of(std::span<const PanelRange> ranges) {
    const PanelRange& last = ranges.back();
    return last.before + last.last - last.first - ranges.front().before;
  }

  // Tasks that follow each other share their panels.
  void run_pass(const Pass& pass) const {
    const auto tasks = static_cast<std::int64_t>(pass.ranges.size()) * pass.blocks;
    for_chunks(context_.pool, tasks, 1, [&](std::int64_t task, std::int64_t) {
      const PanelRange& range = pass.ranges[static_cast<std::size_t>(task / pass.blocks)];
      for (std::int64_t panel = range.first; panel < range.last; ++panel) {
        multiply_panel(pass, range, panel, task % pass.blocks);
      }
    });
  }

  void multiply_panel(const Pass& pass, const PanelRange& range, std::int64_t panel,
                      std::int64_t block) const {
    const LinearProduct& product = params_.products[range.product];
    const PackedWeight& weight = packed(product);
    const std::int64_t first_row = pass.first_row + block * pass.block_rows;
    const std::int64_t column = panel * kPanelColumns;
    PartOfK part = pass.part;
    if (part.sums != nullptr) {
      const std::int64_t index = range.before + panel - range.first - pass.ranges.front().before;
      part.sums += (index * pass.blocks + block) * pass.block_rows * kPanelColumns;
    }
    context_.kernels.multiply_panel(
        {.panel = weight.panel(panel),
         .tiles = tiles_ + first_row * pass.row_bytes,
         .out = pointer_to(product.out) + first_row * weight.rows() + column,
         .k = k_,
         .out_stride = weight.rows(),
         .rows = static_cast<int>(std::min(pass.block_rows, params_.rows - first_row)),
         .columns = static_cast<int>(std::min<std::int64_t>(kPanelColumns, weight.rows() - column)),
         .element = weight.element(),
         .activation = weight.activation(),
         .result =
             params_.result == LinearResult::kAdd ? ProductResult::kAdd : ProductResult::kStore,
         .part = part.sums != nullptr ? &part : nullptr});
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
