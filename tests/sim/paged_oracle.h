// A device for the simulator: tiers whose cells remember which token was written where, and a
// "model" whose next token is a function of everything that the row reads through the block table.
// A stale page, a wrong table entry or a page that was published too early therefore changes the
// output.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/step_executor.h"
#include "kv/lifecycle_controller.h"
#include "sched/step_plan.h"

namespace hisparse::test {

inline constexpr base::TokenId kSimVocabulary = 50;

// What the model says behind `tokens`: what a run without pages, batches or preemption gives.
base::TokenId next_token(std::span<const base::TokenId> tokens);

// Runs StepPlans and copies pages. One thread.
class PagedOracle {
 public:
  PagedOracle(const kv::ControllerConfig& config, std::int32_t sequences,
              std::int32_t pages_per_sequence);

  // The sampled tokens, and the spoiled pages that were read; the first contradiction in words when
  // a row reads what was not written for it.
  engine::StepResult run(const sched::StepPlan& plan);

  // What a mover does. False when the source is spoiled.
  bool copy(const kv::Location& from, const kv::Location& to);
  // What is there is being overwritten.
  void poison(const kv::Location& page);
  // A page on disk no longer holds what was written there.
  void spoil(base::SlotId slot) { spoiled_.insert(slot); }
  // Nothing that is written to this place on disk can be read back.
  void break_slot(base::SlotId slot) {
    broken_.insert(slot);
    spoil(slot);
  }
  std::int64_t broken_writes() const { return broken_writes_; }
  const std::optional<std::string>& contradiction() const { return contradiction_; }

 private:
  struct Cell {
    base::TokenId token = -1;  // -1: never written, or poisoned
    std::int64_t position = -1;
  };

  Cell& at(const kv::Location& page, std::int64_t token) {
    return cells_[index_of(page.tier)]
                 [static_cast<std::size_t>(page.slot.value() * page_tokens_ + token)];
  }
  Cell* cell(std::int32_t sequence_slot, std::int64_t position);
  void find_spoiled(const sched::StepRows& rows, std::vector<kv::Location>& bad) const;
  void write(const sched::StepPlan& plan, const sched::StepRows& rows);
  std::vector<base::TokenId> read(std::int32_t sequence_slot, std::int64_t count);
  std::vector<kv::PageMass> masses(const sched::StepRows& rows, std::int64_t turn) const;
  void contradict(const std::string& what);

  std::int32_t page_tokens_;
  std::int32_t pages_per_sequence_;
  bool disk_is_kept_;
  std::array<std::vector<Cell>, kv::kTiers> cells_;  // [tier][slot, token]
  std::vector<kv::Location> table_;                  // [sequence slot, page]
  std::set<base::SlotId> spoiled_;                   // on disk
  std::set<base::SlotId> broken_;                    // of them, those that stay so
  std::int64_t broken_writes_ = 0;
  std::optional<std::string> contradiction_;
};

}  // namespace hisparse::test
