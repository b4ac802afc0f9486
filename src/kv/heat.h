// How much attention the pages get. It decides which of them stay fast, never an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace hisparse::kv {

// The share of one query's attention that a page of its sequence got, over the pages that were
// looked at.
struct PageMass {
  std::int32_t page = 0;
  float mass = 0.0f;  // 0 to 1; anything else (a NaN) counts for nothing
};

// What a re-plan took from the ring.
struct Replan {
  std::int64_t number = 0;        // of re-plans since the start, with this one
  std::int64_t observations = 0;  // that it took ...
  std::int64_t lost = 0;          // ... and that had fallen out of the ring since the last one
};

// Per block a heat: the mass that it got between two re-plans, as a mean over those since it began
// in which each counts half after kHalfLife further ones; and the time of its last touch, in
// computed tokens. (A mean, not a sum: a page must not look cold because it is new.) Observations
// wait in a ring of fixed size until the next re-plan, so what plans read stays put in between. A
// plain value of fixed size, all of it allocated by the constructor. Engine thread.
class Heat final {
 public:
  // Re-plans until one counts half.
  static constexpr std::int64_t kHalfLife = 8;

  struct Options {
    std::int64_t blocks = 0;
    std::int64_t window = 0;  // observations in the ring; 0: off
    std::int64_t replan_tokens = 0;
  };

  // Off.
  Heat() = default;
  explicit Heat(const Options& options);
  static std::int64_t bytes(const Options& options);  // that it holds
  std::int64_t bytes() const;                         // the same, counted

  bool on() const { return !ring_.empty(); }

  // The block holds other content from now on: it is cold, touched now, and what the ring still
  // knows of it is void.
  void begin(base::BlockId block);
  void observe(base::BlockId block, float mass);
  // So many tokens have been computed. A re-plan, when one was due.
  std::optional<Replan> computed(std::int64_t tokens);

  // As of the last re-plan. Zero when off.
  float heat(base::BlockId block) const;
  // Whether its heat says anything: it was observed with the content that it holds.
  bool known(base::BlockId block) const { return on() && record(block).known; }
  // In steps of a factor of two, so that small differences leave the choice to age: 0 is cold.
  int level(base::BlockId block) const;
  // Tokens computed up to its last touch.
  std::int64_t touched(base::BlockId block) const;

  std::int64_t tokens() const { return tokens_; }
  std::int64_t waiting() const { return observed_ - taken_; }  // in the ring
  std::int64_t window() const { return static_cast<std::int64_t>(ring_.size()); }
  // Totals since the start.
  std::int64_t observations() const { return observed_; }
  std::int64_t lost() const { return lost_; }
  std::int64_t replans() const { return replans_; }

 private:
  struct Record {
    float sum = 0.0f;           // of decayed masses, as of re-plan ...
    bool known = false;         // observed since it began
    std::int64_t replan = 0;    // ... number this
    std::int64_t begun = 0;     // after this re-plan
    std::int64_t touched = 0;   // tokens
    std::int64_t observed = 0;  // observations up to then are of other content
  };
  struct Observation {
    base::BlockId block;
    float mass = 0.0f;
  };

  Record& record(base::BlockId block) { return records_[static_cast<std::size_t>(block.value())]; }
  const Record& record(base::BlockId block) const {
    return records_[static_cast<std::size_t>(block.value())];
  }
  float decayed(const Record& record) const;
  Replan take_ring();

  std::vector<Record> records_;    // [block id]
  std::vector<Observation> ring_;  // observation n is at n % window
  std::int64_t replan_tokens_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t planned_at_ = 0;  // tokens
  std::int64_t observed_ = 0;
  std::int64_t taken_ = 0;  // of those observed: by re-plans, or lost
  std::int64_t lost_ = 0;
  std::int64_t lost_before_ = 0;  // the last re-plan
  std::int64_t replans_ = 0;
};

}  // namespace hisparse::kv
