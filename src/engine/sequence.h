// One request inside the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "engine/request.h"
#include "kv/block_key.h"

namespace hisparse::engine {

// kWaiting: holds no pages. kRunning: holds pages and a row of the block table.
enum class Phase : std::uint8_t { kWaiting, kRunning };

// Engine thread only. Its pages belong to the LifecycleController under the same SequenceId.
struct Sequence {
  base::SequenceId id;
  std::int64_t arrival = 0;  // order of arrival; older ones come first everywhere
  Request request;           // `prompt` has moved to `tokens`
  kv::BlockKey root;
  std::vector<base::TokenId> tokens;  // prompt, then output
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = -1;  // -1: never admitted so far

  Phase phase = Phase::kWaiting;
  std::int32_t slot = -1;  // row of the block table while running
  std::int32_t preemptions = 0;
  std::int64_t rows_lost = 0;      // by the last preemption; to be computed again
  std::int64_t observed_at = 0;    // position of the query that was last asked what it looks at
  bool in_flight = false;          // rows of it are in the step that runs
  std::optional<Finish> retiring;  // ended; goes as soon as nothing of it is in flight

  base::Nanoseconds submitted = 0;
  base::Nanoseconds last_token = 0;  // 0: none yet

  std::int32_t output_tokens() const {
    return static_cast<std::int32_t>(tokens.size()) - prompt_tokens;
  }
  // Tokens whose KV rows it may ever need: the last one is sampled and never read.
  std::int64_t worst_case_tokens() const {
    return static_cast<std::int64_t>(prompt_tokens) + request.sampling.max_tokens - 1;
  }
};

}  // namespace hisparse::engine
