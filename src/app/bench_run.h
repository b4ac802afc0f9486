// One run of `hisparse bench`: a batch of requests through the engine, and when its tokens came.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "app/bench_statistics.h"
#include "base/clock.h"
#include "base/ids.h"
#include "engine/frontend.h"

namespace hisparse::app {

// Requests that are submitted together. Greedy, and deaf to end tokens: each gives `output_len`
// tokens.
struct Batch {
  std::vector<std::vector<base::TokenId>> prompts;  // of the same length, at least one
  std::int32_t output_len = 0;
};

struct RunControl {
  const base::Clock& clock;                       // must outlive the frontend; asked on two threads
  std::function<bool()> stop;                     // asked at least every 100 ms
  std::function<void(const RunTimes&)> progress;  // called now and then, with what came so far
};

// What the engine must show of a token (engine::TokenBytes) when it is measured: one character.
// Random prompts make a model say anything, half characters and control tokens among it, whose
// arrival would show only with a later token.
std::string show_token(base::TokenId token);

// Runs the batch to its end; calling thread. The engine shows tokens by show_token.
//
// A token's arrival is the time at which the output thread says that the request's channel has
// something to take: a client would see the token then. Where tokens are merged, because this
// thread had not taken the earlier one yet, the first has this time and the others the time at
// which they were taken, the earliest at which anybody could have seen them; they are counted in
// `merged_tokens`.
//
// Cancelled: stop() said so, and the requests have been cancelled. Another error names the request
// that was refused, failed, did not give its tokens, or did not show each of them.
absl::StatusOr<RunTimes> run_batch(engine::Frontend& frontend, const Batch& batch,
                                   const RunControl& control);

}  // namespace hisparse::app
