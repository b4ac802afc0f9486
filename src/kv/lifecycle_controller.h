// The KV Lifecycle Controller: where the keys and values of every token live. See README.md here
// for the contract on one page.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kv/block_key.h"
#include "kv/transfer.h"

namespace hisparse::kv {

enum class PrefixCaching { kOn, kOff };

struct ControllerConfig {
  std::int32_t page_tokens = 64;
  std::int32_t resident_slots = 0;  // pages in the slab of each rank
  PrefixCaching prefix_caching = PrefixCaching::kOn;
};

// The longest prefix of a prompt that is held in full, indexed blocks. A value; valid until the
// next change of the controller (admit() checks that: an old block id may hold other content).
struct PrefixMatch {
  std::vector<base::BlockId> blocks;
  std::int64_t tokens = 0;
  std::int64_t prompt_tokens = 0;  // that match() was asked about
  std::uint64_t epoch = 0;         // of the controller that answered
};

// "Page `page` of this sequence is now in `slot`": one entry of the block table that lives on the
// device.
struct TableDelta {
  base::SequenceId sequence;
  std::int32_t page = 0;
  base::SlotId slot;
  bool operator==(const TableDelta&) const = default;
};

// What a step needs from the controller: made by PlanBuilder, executed by commit(). A value.
struct KvPlan {
  struct Admission {
    base::SequenceId sequence;
    BlockKey root;
    PrefixMatch match;
  };
  struct Growth {
    base::SequenceId sequence;
    std::int32_t new_pages = 0;
  };
  std::vector<base::SequenceId> releases;  // in order: releases, evictions, admissions, growths
  std::vector<base::BlockId> evictions;
  std::vector<Admission> admissions;
  std::vector<Growth> growths;
  std::uint64_t epoch = 0;  // of the controller that it was made for
};

// What commit() changed.
struct KvCommit {
  std::vector<TableDelta> deltas;
  std::vector<base::SlotId>
      freed;  // slots that left a block, in order (they may be in `deltas` again)
  TransferPlan transfers;
};

struct KvStats {
  // Slots of the resident tier by state; they sum up to the capacity.
  std::int32_t free = 0;
  std::int32_t filling = 0;     // being written by a sequence, not yet full
  std::int32_t ready = 0;       // full
  std::int32_t draining = 0;    // held by a transfer
  std::int32_t referenced = 0;  // of filling + ready: used by at least one sequence
  std::int32_t cached = 0;      // of ready: indexed and used by none: can be dropped at once
  // Totals since the start.
  std::int64_t lookup_tokens = 0;   // PrefixMatch::prompt_tokens of admitted sequences
  std::int64_t hit_tokens = 0;      // of them found in the index
  std::int64_t dropped_blocks = 0;  // cached blocks given up for room
  std::int64_t deduplicated_blocks = 0;
  std::int64_t stray_completions = 0;  // TransferDone for a transfer that is not in flight
};

class PlanBuilder;

// Owns every Block, the prefix index and the slot accounting of all tiers. Engine thread only.
// Pure: no clock, no threads, no device, no metrics library. Plans are values; commit() of a plan
// made for the present state cannot fail. Invariants are listed in README.md and recomputed from
// scratch by check_invariants().
class LifecycleController {
 public:
  explicit LifecycleController(const ControllerConfig& config);
  ~LifecycleController();
  LifecycleController(const LifecycleController&) = delete;
  LifecycleController& operator=(const LifecycleController&) = delete;

  const ControllerConfig& config() const;

  // The longest indexed prefix of `tokens` under `root`, in whole pages, leaving at least one token
  // to compute. Compares tokens, not only keys.
  PrefixMatch match(const BlockKey& root, std::span<const base::TokenId> tokens) const;

  // A view on which the scheduler tries out what fits. Changes nothing.
  PlanBuilder plan() const;

  // Executes a plan made for the present state (checked). Admitted sequences start with their match
  // written.
  KvCommit commit(const KvPlan& plan);

  // The KV rows of `tokens` have been produced behind what the sequence has already written (within
  // its pages). Pages that became full are published in the index; one whose content is already
  // there is replaced by the indexed copy, which the returned deltas tell. Only when no step that
  // reads the sequence is in flight.
  KvCommit written(base::SequenceId sequence, std::span<const base::TokenId> tokens);

  // The sequence ended: its references go; full indexed pages stay cached, others are freed. Only
  // when no step that touches the sequence is in flight. Returns the freed slots.
  KvCommit release(base::SequenceId sequence);

  // Takes a mover's message. A completion of a transfer that is not in flight is counted and
  // ignored.
  void apply(const TransferDone& done);

  std::int64_t written_tokens(base::SequenceId sequence) const;
  std::vector<base::SlotId> slots(base::SequenceId sequence) const;  // its block table
  bool has(base::SequenceId sequence) const;

  KvStats stats() const;

  // Recomputes every invariant from scratch; the first violation in words, or nothing.
  std::optional<std::string> check_invariants() const;

 private:
  friend class PlanBuilder;
  struct State;
  std::unique_ptr<State> state_;
};

// Collects what one step wants while keeping count of what that leaves, without touching the
// controller. Engine thread; must not outlive the controller; void after any change of it. Each
// call that answers false has changed nothing.
class PlanBuilder {
 public:
  ~PlanBuilder();
  PlanBuilder(PlanBuilder&&) noexcept;
  PlanBuilder& operator=(PlanBuilder&&) noexcept;

  // Pages that could be taken now: free ones and cached ones that no sequence of the plan uses.
  std::int32_t available_pages() const;
  // Pages that `tokens` tokens take beyond those that the sequence holds (in the controller or in
  // this plan); for an unknown sequence all of them.
  std::int32_t pages_missing(base::SequenceId sequence, std::int64_t tokens) const;

  // Starts a sequence on a match and gives it pages for `tokens` tokens in all.
  [[nodiscard]] bool admit(base::SequenceId sequence, const BlockKey& root,
                           const PrefixMatch& match, std::int64_t tokens);
  // Gives a known or just admitted sequence pages for `tokens` tokens in all.
  [[nodiscard]] bool extend(base::SequenceId sequence, std::int64_t tokens);
  // Takes everything from a sequence that the controller knows and this plan has not extended
  // (preemption).
  void release(base::SequenceId sequence);

  KvPlan finish() &&;

 private:
  friend class LifecycleController;
  struct State;
  explicit PlanBuilder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hisparse::kv
