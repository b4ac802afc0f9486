// One pass of packed rows over the panels of some weights: what the threads share out between them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "device/cpu/kernels.h"
#include "device/operators.h"

namespace hisparse::device::cpu {

// Blocks of rows meet panels in a part of k. Plain values that lie together, since another core
// takes them over line by line. Lives on the stack of the caller of run().
struct PanelPass {
  struct Product {
    const std::byte* panels = nullptr;
    std::int64_t panel_bytes = 0;  // of each
    float* out = nullptr;          // [rows, columns]
    std::int64_t columns = 0;
    std::int64_t first_panel = 0;  // counted over all products
    Element element = Element::kF32;
  };

  void (*multiply_panel)(const PanelProduct& product) = nullptr;
  const std::byte* tiles = nullptr;  // [rows, row_bytes]: rows packed as `activation`
  std::int64_t row_bytes = 0;
  std::int64_t rows = 0;  // of all passes
  std::int64_t k = 0;
  std::int64_t begin_panel = 0;  // of this pass: [begin_panel, end_panel)
  std::int64_t end_panel = 0;
  std::int64_t first_row = 0;  // of this pass
  std::int64_t blocks = 1;
  std::int64_t block_rows = 0;
  PartOfK part;  // with the sums of this pass: [panels, blocks * block_rows, kPanelColumns]
  int product_count = 0;
  Activation activation = Activation::kF32;
  ProductResult result = ProductResult::kStore;
  Product products[kMaxProducts];

  // Multiplies all of it on the threads of the pool, and returns when it is done. `out` is written
  // by the pass whose part ends at k; until then the sums rest.
  void run(base::ThreadPool& pool) const;
  // Calls for the pool. Tasks that follow each other share their panel.
  void operator()(std::int64_t task) const;

 private:
  void multiply(std::int64_t panel, std::int64_t block) const;
};

}  // namespace hisparse::device::cpu
