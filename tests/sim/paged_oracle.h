// A device for the simulator: a slab whose cells remember which token was written where, and a
// "model" whose next token is a function of everything that the row reads through the block table.
// A stale page, a wrong table entry or a page that was published too early therefore changes the
// output.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/step_executor.h"
#include "sched/step_plan.h"

namespace hisparse::test {

inline constexpr base::TokenId kSimVocabulary = 50;

// What the model says behind `tokens`: what a run without pages, batches or preemption gives.
base::TokenId next_token(std::span<const base::TokenId> tokens);

// Runs StepPlans. One thread.
class PagedOracle {
 public:
  PagedOracle(std::int32_t slots, std::int32_t page_tokens, std::int32_t sequences,
              std::int32_t pages_per_sequence);

  // The sampled tokens; the first contradiction in words when a row reads what was not written for
  // it.
  engine::StepResult run(const sched::StepPlan& plan);
  const std::optional<std::string>& contradiction() const { return contradiction_; }

 private:
  struct Cell {
    base::TokenId token = -1;  // -1: never written, or poisoned
    std::int64_t position = -1;
  };

  Cell* cell(std::int32_t sequence_slot, std::int64_t position);
  void write(const sched::StepPlan& plan, const sched::StepRows& rows);
  std::vector<base::TokenId> read(std::int32_t sequence_slot, std::int64_t count);
  void contradict(const std::string& what);

  std::int32_t page_tokens_;
  std::int32_t pages_per_sequence_;
  std::vector<Cell> cells_;          // [slot, token]
  std::vector<base::SlotId> table_;  // [sequence slot, page]
  std::optional<std::string> contradiction_;
};

}  // namespace hisparse::test
