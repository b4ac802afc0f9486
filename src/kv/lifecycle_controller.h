// The KV Lifecycle Controller: where the keys and values of every token live. See README.md here
// for the contract on one page.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kv/block_key.h"
#include "kv/heat.h"
#include "kv/transfer.h"

namespace hisparse::kv {

enum class PrefixCaching { kOn, kOff };

// kOnPressure: a page is copied down when its slot is (soon) wanted. kEager: as soon as it is full.
enum class Mirroring { kOnPressure, kEager };

enum class HostReads { kInPlace, kCopied };

// kOn: every indexed page is copied to disk, and its copy there stays while there is room, so that
// the next process finds it (adopt()).
enum class Persistence { kOff, kOn };

struct ControllerConfig {
  std::int32_t page_tokens = 64;
  std::int32_t resident_slots = 0;  // pages in the slab of each rank
  std::int32_t host_slots = 0;      // pages in the host pool
  std::int32_t disk_slots = 0;      // pages in the disk pool
  std::int32_t max_transfers = 16;  // in flight at a time
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  Mirroring mirroring = Mirroring::kOnPressure;
  Persistence persistence = Persistence::kOff;
  std::int64_t first_transfer = 0;  // ids of transfers begin here; see write_number()

  // kInPlace: the device reads host pages where they lie (the CPU), so only disk pages come back.
  HostReads host_reads = HostReads::kInPlace;

  std::int64_t heat_window = 0;      // observations kept between re-plans; 0: no heat
  std::int64_t replan_tokens = 100;  // computed tokens between re-plans
  std::int64_t exchange_pages = 16;  // moved by one re-plan at the most

  bool tiered() const { return host_slots > 0 || disk_slots > 0; }
};

// The longest prefix of a prompt that is held in full, indexed blocks, wherever these lie. A value;
// valid until the
// next change of the controller (admit() checks that: an old block id may hold other content).
struct PrefixMatch {
  std::vector<base::BlockId> blocks;
  std::int64_t tokens = 0;
  std::int64_t prompt_tokens = 0;  // that match() was asked about
  std::uint64_t epoch = 0;         // of the controller that answered
};

// "Page `page` of this sequence is now read at `location`": one entry of the block table that lives
// on the device.
struct TableDelta {
  base::SequenceId sequence;
  std::int32_t page = 0;
  Location location;
  bool operator==(const TableDelta&) const = default;
};

// What a step needs from the controller: made by PlanBuilder, executed by commit(). A value.
struct KvPlan {
  struct Admission {
    base::SequenceId sequence;
    BlockKey root;
    PrefixMatch match;
    std::int64_t reserved_pages = 0;
  };
  struct Growth {
    base::SequenceId sequence;
    std::int32_t new_pages = 0;
  };
  // A copy to be made of a block.
  struct Move {
    base::BlockId block;
    Tier from = Tier::kResident;
    Tier to = Tier::kResident;
    MoveReason reason = MoveReason::kSpill;
  };
  std::vector<base::SequenceId> releases;  // in this order ...
  std::vector<base::BlockId> evictions;    // whole blocks
  std::vector<base::BlockId> drops;        // resident copies of blocks that have a lower one
  std::vector<base::BlockId> host_drops;   // host copies of blocks that have one on disk
  std::vector<Admission> admissions;
  std::vector<Growth> growths;
  std::vector<Move> moves;
  bool looked_for_exchange = false;
  std::uint64_t epoch = 0;  // of the controller that it was made for

  bool empty() const {
    return releases.empty() && evictions.empty() && drops.empty() && host_drops.empty() &&
           admissions.empty() && growths.empty() && moves.empty();
  }
};

// What commit() changed.
struct KvCommit {
  std::vector<TableDelta> deltas;
  // Slots that left a block, in order (they may be in `deltas` or be filled by `transfers` again).
  std::vector<Location> freed;
  TransferPlan transfers;
  // A transfer found that this copy is bad: its readers() must be released, then it must be lost.
  std::optional<Location> lost;
  std::optional<Replan> replan;  // that was due
};

// Slots of a tier by state; they sum up to its capacity.
struct TierStats {
  std::int32_t capacity = 0;
  std::int32_t free = 0;
  std::int32_t filling = 0;   // being written by a sequence or a transfer
  std::int32_t ready = 0;     // all rows are there
  std::int32_t draining = 0;  // the same, and a transfer reads them
  bool closed = false;        // takes no further pages: it failed too often
};

// Pages copied, [from][to].
using MoveCounts = std::array<std::array<std::int64_t, kTiers>, kTiers>;

struct KvStats {
  std::array<TierStats, kTiers> tiers;
  std::int32_t referenced = 0;   // blocks used by at least one sequence
  std::int32_t cached = 0;       // blocks that are indexed and used by none
  std::int32_t in_flight = 0;    // transfers
  std::int32_t unpersisted = 0;  // indexed blocks that are yet to be copied to disk
  // Totals since the start.
  std::int64_t lookup_tokens = 0;                // PrefixMatch::prompt_tokens of admitted sequences
  std::int64_t hit_tokens = 0;                   // of them found in the index
  std::array<std::int64_t, kTiers> hit_pages{};  // by where they lay
  std::int64_t dropped_blocks = 0;               // cached blocks given up for room
  std::int64_t deduplicated_blocks = 0;
  std::int64_t stray_completions = 0;  // TransferDone for a transfer that is not in flight
  std::int64_t failed_transfers = 0;
  std::int64_t lost_pages = 0;  // whose rows were found to be other than what was written
  std::int64_t adopted_pages = 0;
  std::int64_t heat_observations = 0;
  std::int64_t heat_observations_lost = 0;  // fell out of the ring before a re-plan
  std::int64_t heat_replans = 0;
  std::int64_t exchanged_pages = 0;  // brought up in the place of a colder one
  MoveCounts moved{};
  std::array<std::int64_t, kMoveReasons> moved_for{};  // by MoveReason

  const TierStats& tier(Tier tier) const { return tiers[index_of(tier)]; }
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

  // Takes over pages that an earlier process left on disk, as cached ones; before any other call.
  // Pages whose place is taken or does not exist, whose parents are missing or whose content is
  // there twice are left out. How many were taken.
  std::int64_t adopt(std::span<const PersistedPage> pages);

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

  // What one query of the sequence looked at, page by page (of its table, checked). Placement only.
  void observe(base::SequenceId sequence, std::span<const PageMass> masses);
  // Whether observations are worth their price: heat is on, and the slab is half full.
  bool wants_observations() const;

  // The sequence ended: its references go; full indexed pages stay cached, others are freed. Only
  // when no step that touches the sequence is in flight. Returns the freed slots.
  KvCommit release(base::SequenceId sequence);

  // Takes a mover's message; only when no step is in flight. A completion of a transfer that is not
  // in flight is counted and ignored.
  KvCommit apply(const TransferDone& done);

  // The sequences that read this slot. When it turns out to be bad, release them, then lose() it.
  std::vector<base::SequenceId> readers(const Location& location) const;
  // What this slot holds is not what was written there: its copy goes, and where it was the only
  // one the page and all behind it leave the index. No sequence holds it (checked).
  KvCommit lose(const Location& location);

  std::int64_t written_tokens(base::SequenceId sequence) const;
  // Where each page of its block table is read.
  std::vector<Location> locations(base::SequenceId sequence) const;
  bool has(base::SequenceId sequence) const;
  bool transfers_in_flight() const;

  KvStats stats() const;

  // Recomputes every invariant from scratch; the first violation in words, or nothing.
  std::optional<std::string> check_invariants() const;

 private:
  friend class PlanBuilder;
  struct State;
  std::unique_ptr<State> state_;
};

// What PlanBuilder::extend says. kLater: pages are being copied down, or can be, and give room
// then. kNoSlot, kNoRoom: not unless somebody gives up a resident slot, or pages in any tier.
enum class Grant : std::uint8_t { kNow, kLater, kNoSlot, kNoRoom };

// Collects what one step wants while keeping count of what that leaves, without touching the
// controller. Engine thread; must not outlive the controller; void after any change of it.
//
// Room is counted twice. *Reserved* room is logical: pages over all tiers, promised at admission so
// that a prompt, once begun, can be finished. *Resident* room is physical: a page is written in the
// resident tier, so growing needs a slot there now.
class PlanBuilder {
 public:
  ~PlanBuilder();
  PlanBuilder(PlanBuilder&&) noexcept;
  PlanBuilder& operator=(PlanBuilder&&) noexcept;

  // Pages over all tiers that no sequence of the plan uses or has reserved.
  std::int64_t available_pages() const;
  // Pages that `tokens` tokens take beyond those that the sequence holds or has reserved (in the
  // controller or in this plan); for an unknown sequence all of them.
  std::int64_t pages_missing(base::SequenceId sequence, std::int64_t tokens) const;

  // Starts a sequence on a match and reserves room for `tokens` tokens in all. False: nothing has
  // changed.
  [[nodiscard]] bool admit(base::SequenceId sequence, const BlockKey& root,
                           const PrefixMatch& match, std::int64_t tokens);
  // Gives a known or just admitted sequence resident pages for `tokens` tokens in all, within what
  // it has reserved or else from the available pages. Other than kNow: nothing has changed, but
  // finish() will make room.
  [[nodiscard]] Grant extend(base::SequenceId sequence, std::int64_t tokens);
  // The most tokens up to `tokens` for which extend() would say kNow.
  std::int64_t tokens_with_room(base::SequenceId sequence, std::int64_t tokens) const;
  // Whether releasing the sequence would give what extend() said was missing.
  bool release_helps(base::SequenceId sequence, Grant missing) const;
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
