// The matrix products: packs the rows once for all weights that share them, then shares out panels.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "device/cpu/cpu_memory.h"
#include "device/cpu/cpu_operators.h"
#include "device/cpu/packed_weight.h"
#include "device/cpu/panel_pass.h"

namespace hisparse::device::cpu {
namespace {

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

  // Blocks of rows of equal size, in whole tiles, and how many of them share each panel.
  struct RowBlocks {
    std::int64_t count = 0;
    std::int64_t rows = 0;      // of each but the last
    std::int64_t together = 0;  // blocks
    std::int64_t part = 0;      // of k
  };

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

  void multiply(int begin, int end, std::int64_t row_bytes) const {
    const RowBlocks blocks = cut_rows(row_bytes);
    PanelPass pass = make_pass(begin, end, row_bytes);
    pass.block_rows = blocks.rows;
    for (std::int64_t first = 0; first < blocks.count; first += blocks.together) {
      pass.first_row = first * blocks.rows;
      pass.blocks = std::min(blocks.together, blocks.count - first);
      if (blocks.part < k_) {
        multiply_in_parts(pass, blocks.part);
      } else {
        pass.run(context_.pool);
      }
    }
  }

  PanelPass make_pass(int begin, int end, std::int64_t row_bytes) const {
    PanelPass pass;
    pass.multiply_panel = context_.kernels.multiply_panel;
    for (int i = begin; i < end; ++i) {
      const PackedWeight& weight = packed(params_.products[i]);
      pass.products[i - begin] = {.panels = weight.panel(0),
                                  .panel_bytes = panel_bytes(weight.element(), k_),
                                  .out = pointer_to(params_.products[i].out),
                                  .columns = weight.rows(),
                                  .first_panel = pass.end_panel,
                                  .element = weight.element()};
      pass.end_panel += weight.panels();
    }
    pass.product_count = end - begin;
    pass.activation = packed(params_.products[begin]).activation();
    if (params_.result == LinearResult::kAdd) pass.result = ProductResult::kAdd;
    pass.tiles = tiles_;
    pass.row_bytes = row_bytes;
    pass.rows = params_.rows;
    pass.k = k_;
    pass.part.end = k_;
    return pass;
  }

  // Takes no more panels at a time than may have their sums rest.
  void multiply_in_parts(PanelPass pass, std::int64_t steps) const {
    thread_local std::vector<float> memory;
    const std::int64_t panel_sums = pass.blocks * pass.block_rows * kPanelColumns;
    const std::int64_t most = kRestingBytes / (panel_sums * std::int64_t{sizeof(float)});
    const std::int64_t panels = pass.end_panel;
    pass.part.sums = scratch(memory, std::min(most, panels) * panel_sums);
    for (std::int64_t first = 0; first < panels; first += most) {
      pass.begin_panel = first;
      pass.end_panel = std::min(panels, first + most);
      for (std::int64_t begin = 0; begin < k_; begin += steps) {
        pass.part.begin = begin;
        pass.part.end = std::min(k_, begin + steps);
        pass.run(context_.pool);
      }
    }
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
