#include "tests/sim/paged_oracle.h"

#include <algorithm>

namespace hisparse::test {

base::TokenId next_token(std::span<const base::TokenId> tokens) {
  // FNV-1a over the whole history.
  std::uint64_t hash = 14695981039346656037ull;
  for (base::TokenId token : tokens)
    hash = (hash ^ static_cast<std::uint64_t>(token)) * 1099511628211ull;
  return static_cast<base::TokenId>((hash >> 20) % kSimVocabulary);
}

PagedOracle::PagedOracle(const kv::ControllerConfig& config, std::int32_t sequences,
                         std::int32_t pages_per_sequence)
    : page_tokens_(config.page_tokens),
      pages_per_sequence_(pages_per_sequence),
      disk_is_kept_(config.persistence == kv::Persistence::kOn),
      table_(static_cast<std::size_t>(sequences * pages_per_sequence)) {
  const std::int32_t slots[] = {config.resident_slots, config.host_slots, config.disk_slots};
  for (const kv::Tier tier : kv::kAllTiers) {
    cells_[index_of(tier)].resize(static_cast<std::size_t>(slots[index_of(tier)] * page_tokens_));
  }
}

void PagedOracle::poison(const kv::Location& page) {
  for (std::int64_t token = 0; token < page_tokens_; ++token) at(page, token) = {};
}

bool PagedOracle::copy(const kv::Location& from, const kv::Location& to) {
  if (from.tier == kv::Tier::kDisk && spoiled_.contains(from.slot)) return false;
  for (std::int64_t token = 0; token < page_tokens_; ++token) at(to, token) = at(from, token);
  if (to.tier == kv::Tier::kDisk) {
    if (broken_.contains(to.slot)) {
      ++broken_writes_;
    } else {
      spoiled_.erase(to.slot);
    }
  }
  return true;
}

void PagedOracle::contradict(const std::string& what) {
  if (!contradiction_) contradiction_ = what;
}

PagedOracle::Cell* PagedOracle::cell(std::int32_t sequence_slot, std::int64_t position) {
  const std::int64_t page = position / page_tokens_;
  if (page >= pages_per_sequence_) {
    contradict("position " + std::to_string(position) + " is beyond the block table");
    return nullptr;
  }
  const kv::Location& location =
      table_[static_cast<std::size_t>(sequence_slot * pages_per_sequence_ + page)];
  if (!location.slot.valid()) {
    contradict("page " + std::to_string(page) + " has no slot");
    return nullptr;
  }
  return &at(location, position % page_tokens_);
}

void PagedOracle::write(const sched::StepPlan& plan, const sched::StepRows& rows) {
  for (std::int32_t i = 0; i < rows.count; ++i) {
    const auto page = static_cast<std::size_t>(rows.sequence_slot * pages_per_sequence_ +
                                               (rows.first + i) / page_tokens_);
    if (page < table_.size() && table_[page].tier != kv::Tier::kResident) {
      contradict("a row is written to a page that is not resident");
    }
    if (Cell* target = cell(rows.sequence_slot, rows.first + i)) {
      *target = {.token = plan.tokens[static_cast<std::size_t>(rows.tokens_begin + i)],
                 .position = rows.first + i};
    }
  }
}

std::vector<base::TokenId> PagedOracle::read(std::int32_t sequence_slot, std::int64_t count) {
  std::vector<base::TokenId> tokens;
  for (std::int64_t position = 0; position < count; ++position) {
    const Cell* source = cell(sequence_slot, position);
    if (source == nullptr) break;
    if (source->position != position) {
      contradict("position " + std::to_string(position) + " holds what was written for position " +
                 std::to_string(source->position));
    }
    tokens.push_back(source->token);
  }
  return tokens;
}

void PagedOracle::find_spoiled(const sched::StepRows& rows, std::vector<kv::Location>& bad) const {
  for (std::int64_t page = 0; page * page_tokens_ < rows.first + rows.count; ++page) {
    const kv::Location& location =
        table_[static_cast<std::size_t>(rows.sequence_slot * pages_per_sequence_ + page)];
    if (location.tier != kv::Tier::kDisk || !spoiled_.contains(location.slot)) continue;
    if (std::ranges::find(bad, location) == bad.end()) bad.push_back(location);
  }
}

// Any number, as long as they are shares: placement must not change what is computed.
std::vector<kv::PageMass> PagedOracle::masses(const sched::StepRows& rows,
                                              std::int64_t turn) const {
  std::vector<kv::PageMass> masses;
  for (std::int32_t page = 0; page * page_tokens_ < rows.first + rows.count; ++page) {
    const kv::Location& location =
        table_[static_cast<std::size_t>(rows.sequence_slot * pages_per_sequence_ + page)];
    if (location.tier == kv::Tier::kDisk) continue;
    const std::int64_t mixed = (page * 7919 + turn * 104729 + rows.sequence_slot) % 101;
    masses.push_back({.page = page, .mass = static_cast<float>(mixed * mixed) / 10000.0f});
  }
  return masses;
}

engine::StepResult PagedOracle::run(const sched::StepPlan& plan) {
  for (const kv::Location& page : plan.freed) {
    // The next process may take over what is on disk.
    if (page.tier != kv::Tier::kDisk || !disk_is_kept_) poison(page);
  }
  for (const sched::BlockTableDelta& delta : plan.deltas) {
    table_[static_cast<std::size_t>(delta.sequence_slot * pages_per_sequence_ + delta.page)] =
        delta.location;
  }
  for (const sched::StepRows& rows : plan.rows) write(plan, rows);
  // Every row reads its whole history, sampled or not, as attention does.
  for (const sched::StepRows& rows : plan.rows) read(rows.sequence_slot, rows.first + rows.count);
  engine::StepResult result;
  result.id = plan.id;
  for (const sched::StepRows& rows : plan.rows) find_spoiled(rows, result.bad_pages);
  for (const sched::StepObservation& wanted : plan.observations) {
    result.observed.push_back(masses(plan.rows[static_cast<std::size_t>(wanted.row)], wanted.turn));
  }
  for (const sched::StepSample& sample : plan.samples) {
    const sched::StepRows& rows = plan.rows[static_cast<std::size_t>(sample.row)];
    result.tokens.push_back(next_token(read(rows.sequence_slot, rows.first + rows.count)));
  }
  return result;
}

}  // namespace hisparse::test
