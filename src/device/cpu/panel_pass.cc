#include "device/cpu/panel_pass.h"

#include <algorithm>

namespace hisparse::device::cpu {

void PanelPass::run(base::ThreadPool& pool) const {
  // One row passes by in little time: there it counts when a thread has it.
  const std::size_t read = rows == 1 ? static_cast<std::size_t>(row_bytes) : 0;
  pool.parallel_for((last_panel - first_panel) * blocks, *this, {tiles, read});
}

void PanelPass::operator()(std::int64_t task) const {
  multiply(first_panel + task / blocks, task % blocks);
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
    own_part.sums += ((panel - first_panel) * blocks + block) * block_rows * kPanelColumns;
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
