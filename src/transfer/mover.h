// What executes the controller's transfers.
#pragma once

#include <functional>
#include <vector>

#include "kv/transfer.h"

namespace hisparse::transfer {

// Executes TransferPlans, restores before demotions, and answers every op with exactly one
// TransferDone, in any order. The calls come from the engine thread, return at once and cannot
// fail: what goes wrong with an op is in its TransferDone.
class Mover {
 public:
  virtual ~Mover() = default;

  // `wake` is called, on any thread, when drain() has something new to say. Before the first
  // submit(); may be empty.
  virtual void set_wake(std::function<void()> wake) = 0;

  virtual void submit(kv::TransferPlan plan) = 0;

  // The completions since the last call, as values for LifecycleController::apply().
  virtual std::vector<kv::TransferDone> drain() = 0;
};

// The mover of a configuration without lower tiers: there is nowhere to move a page to, so every op
// fails (FAILED_PRECONDITION) and its source stays where it is.
class NullMover final : public Mover {
 public:
  void set_wake(std::function<void()> /*wake*/) override {}
  void submit(kv::TransferPlan plan) override;
  std::vector<kv::TransferDone> drain() override;

 private:
  void refuse(const kv::TransferOp& op);

  std::vector<kv::TransferDone> done_;
};

}  // namespace hisparse::transfer
