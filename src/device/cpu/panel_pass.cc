#include "device/cpu/panel_pass.h"

#include <algorithm>

namespace hisparse::device::cpu {
namespace {

// So few are not worth telling another thread: less than a microsecond.
constexpr std::int64_t kInlineProducts = 8192;

}  // namespace

void PanelPass::run(base::ThreadPool& pool) const {
  const std::int64_t tasks = (end_panel - begin_panel) * blocks;
  if (rows * k * kPanelColumns * tasks <= kInlineProducts) {
    for (std::int64_t task = 0; task < tasks; ++task) (*this)(task);
    return;
  }
  // A single row takes so little time for a panel that its way to another core counts.
  const std::size_t read = rows == 1 ? static_cast<std::size_t>(row_bytes) : 0;
  pool.parallel_for(tasks, *this, {tiles, read});
}

void PanelPass::operator()(std::int64_t task) const {
  multiply(begin_panel + task / blocks, task % blocks);
}

void PanelPass::multiply(std::int64_t panel, std::int64_t block) const {
  int i = product_count - 1;
  while (products[i].first_panel > panel) --i;
  const Product& product = products[i];
  const std::int64_t index = panel - product.first_panel;
  const std::int64_t column = index * kPanelColumns;
  const std::int64_t row = first_row + block * block_rows;
  PartOfK own_part = part;
  if (part.sums != nullptr) {
    own_part.sums += ((panel - begin_panel) * blocks + block) * block_rows * kPanelColumns;
  }
  multiply_panel(
      {.panel = product.panels + index * product.panel_bytes,
       .tiles = tiles + row * row_bytes,
       .out = product.out + row * product.columns + column,
       .k = k,
       .out_stride = product.columns,
       .rows = static_cast<int>(std::min(block_rows, rows - row)),
       .columns = static_cast<int>(std::min<std::int64_t>(kPanelColumns, product.columns - column)),
       .element = product.element,
       .activation = activation,
       .result = result,
       .part = part.sums != nullptr ? &own_part : nullptr});
}

}  // namespace hisparse::device::cpu
