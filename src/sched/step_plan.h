// What the workers do in one step: pointer-free values, the same object for every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kv/transfer.h"

namespace hisparse::sched {

// Rows of one sequence: the tokens at positions first ... first + count - 1, whose KV rows this
// step writes. `tokens_begin` is where they start in StepPlan::tokens.
struct StepRows {
  std::int32_t sequence_slot = 0;  // row of the device's block table
  std::int64_t first = 0;
  std::int32_t count = 0;
  std::int32_t tokens_begin = 0;
  // The first of them that are not computed: their KV rows come from a source (engine/kv_source.h).
  std::int32_t injected = 0;
};

// "Page `page` of the sequence in `sequence_slot` is read at `location`": applied before the rows
// run.
struct BlockTableDelta {
  std::int32_t sequence_slot = 0;
  std::int32_t page = 0;
  kv::Location location;
};

// The next token behind the last row of rows[row] is sampled this way. `counter` is the index of
// the token in its request's output, so the draw does not depend on the batch or on preemption.
struct StepSample {
  std::int32_t row = 0;
  float temperature = 0.0f;
  float top_p = 1.0f;
  std::int32_t top_k = 0;
  std::uint64_t seed = 0;
  std::uint64_t counter = 0;
};

// What the last row of rows[row] looks at in one layer is wanted, page by page, for the heat of the
// pages. `turn`, modulo the layers, is the layer.
struct StepObservation {
  std::int32_t row = 0;
  std::int64_t turn = 0;
};
inline constexpr std::int32_t kMaxObservations = 4;  // in a step

struct StepPlan {
  base::StepId id;
  std::vector<kv::Location> freed;  // held another block's rows: poisoned first in test builds
  std::vector<BlockTableDelta> deltas;
  std::vector<StepRows> rows;
  std::vector<base::TokenId> tokens;  // of all rows, in order
  std::vector<StepSample> samples;
  std::vector<StepObservation> observations;
};

}  // namespace hisparse::sched
