#include <utility>

#include "transfer/mover.h"

namespace hisparse::transfer {

void NullMover::submit(kv::TransferPlan plan) {
  for (const kv::TransferOp& op : plan.restores) refuse(op);
  for (const kv::TransferOp& op : plan.demotions) refuse(op);
}

std::vector<kv::TransferDone> NullMover::drain() { return std::exchange(done_, {}); }

void NullMover::refuse(const kv::TransferOp& op) {
  done_.push_back(
      {.id = op.id,
       .status = absl::FailedPreconditionError("no tier below the resident one is configured")});
}

}  // namespace hisparse::transfer
