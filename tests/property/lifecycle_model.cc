#include "tests/property/lifecycle_model.h"

#include <algorithm>

namespace hisparse::tests {
namespace {

std::string told(const char* what, std::int64_t id) {
  return std::string(what) + " (" + std::to_string(id) + ")";
}

}  // namespace

bool ModelPlan::releases_sequence(Sequence sequence) const {
  return std::ranges::find(releases, sequence) != releases.end();
}

const ModelPlan::Admission* ModelPlan::admission_of(Sequence sequence) const {
  for (const Admission& admission : admissions) {
    if (admission.sequence == sequence) return &admission;
  }
  return nullptr;
}

LifecycleModel::LifecycleModel(const kv::ControllerConfig& config) : config_(config) {
  memory_[0].resize(static_cast<std::size_t>(config.resident_slots));
  memory_[1].resize(static_cast<std::size_t>(config.host_slots));
  memory_[2].resize(static_cast<std::size_t>(config.disk_slots));
}

LifecycleModel::Content& LifecycleModel::at(const kv::Location& location) {
  return memory_.at(index_of(location.tier)).at(static_cast<std::size_t>(location.slot.value()));
}
const LifecycleModel::Content& LifecycleModel::at(const kv::Location& location) const {
  return memory_.at(index_of(location.tier)).at(static_cast<std::size_t>(location.slot.value()));
}

std::int64_t LifecycleModel::pages_for(std::int64_t tokens) const {
  std::int64_t pages = 0;
  while (pages * config_.page_tokens < tokens) ++pages;
  return pages;
}

// What a page of the sequence must hold.
LifecycleModel::Content LifecycleModel::expected(const Live& live, std::size_t page) const {
  const auto page_tokens = static_cast<std::size_t>(config_.page_tokens);
  const std::size_t begin = std::min(page * page_tokens, live.tokens.size());
  const std::size_t end = std::min(begin + page_tokens, live.tokens.size());
  const auto from = [&](std::size_t i) {
    return live.tokens.begin() + static_cast<std::ptrdiff_t>(i);
  };
  return {.root = live.root,
          .before = Tokens(live.tokens.begin(), from(begin)),
          .tokens = Tokens(from(begin), from(end))};
}

std::int64_t LifecycleModel::pages_held_of(int root, const Tokens& prompt) const {
  const auto page_tokens = static_cast<std::size_t>(config_.page_tokens);
  std::size_t longest = 0;
  for (const auto& [id, live] : sequences_) {
    if (live.root != root) continue;
    std::size_t common = 0;
    while (common < prompt.size() && common < live.tokens.size() &&
           prompt[common] == live.tokens[common]) {
      ++common;
    }
    longest = std::max(longest, common / page_tokens);
  }
  return static_cast<std::int64_t>(std::min(longest, (prompt.size() - 1) / page_tokens));
}

std::int64_t LifecycleModel::pages_held(Sequence sequence, const ModelPlan& plan) const {
  std::int64_t pages = 0;
  const auto live = sequences_.find(sequence);
  if (const ModelPlan::Admission* admission = plan.admission_of(sequence)) {
    pages = admission->matched;
  } else if (live != sequences_.end() && !plan.releases_sequence(sequence)) {
    pages = static_cast<std::int64_t>(live->second.table.size());
  }
  const auto grown = plan.growths.find(sequence);
  return pages + (grown == plan.growths.end() ? 0 : grown->second);
}

std::int64_t LifecycleModel::reserved(Sequence sequence, const ModelPlan& plan) const {
  std::int64_t pages = 0;
  const auto live = sequences_.find(sequence);
  if (const ModelPlan::Admission* admission = plan.admission_of(sequence)) {
    pages = admission->reserved;
  } else if (live != sequences_.end() && !plan.releases_sequence(sequence)) {
    pages = live->second.reserved;
  }
  return std::max(pages, pages_held(sequence, plan));
}

std::int64_t LifecycleModel::available(const ModelPlan& plan) const {
  std::int64_t room =
      std::int64_t{config_.resident_slots} + config_.host_slots + config_.disk_slots;
  // Distinct pages in use: published ones are told apart by content, others by their sequence.
  std::set<std::pair<int, Tokens>> shared;
  std::set<Sequence> everybody;
  for (const auto& [id, live] : sequences_) {
    if (!plan.releases_sequence(id)) everybody.insert(id);
  }
  std::set<std::pair<std::size_t, std::int32_t>> used;
  for (const Sequence id : everybody) {
    for (const kv::Location& page : sequences_.at(id).table) {
      used.insert({index_of(page.tier), page.slot.value()});
    }
  }
  room -= static_cast<std::int64_t>(used.size());
  for (const ModelPlan::Admission& admission : plan.admissions)
    everybody.insert(admission.sequence);
  for (const Sequence id : everybody) {
    const auto live = sequences_.find(id);
    const bool admitted = plan.admission_of(id) != nullptr;
    const std::int64_t now = admitted ? plan.admission_of(id)->matched
                                      : static_cast<std::int64_t>(live->second.table.size());
    room -= reserved(id, plan) - now;
  }
  return room;
}

bool LifecycleModel::read_by_anybody(const kv::Location& location) const {
  return std::ranges::any_of(sequences_, [&](const auto& entry) {
    return std::ranges::find(entry.second.table, location) != entry.second.table.end();
  });
}

bool LifecycleModel::moved_by_anything(const kv::Location& location) const {
  return std::ranges::any_of(transfers_, [&](const auto& entry) {
    return entry.second.from == location || entry.second.to == location;
  });
}

void LifecycleModel::leave(Sequence sequence) { sequences_.erase(sequence); }

// A page that is new for its sequence, or one that is read elsewhere from now on.
Disagreement LifecycleModel::take(const kv::TableDelta& delta,
                                  std::map<Sequence, std::int64_t>& fresh) {
  const auto found = sequences_.find(delta.sequence.value());
  if (found == sequences_.end()) return "a delta for a sequence that is not there";
  Live& live = found->second;
  const auto page = static_cast<std::size_t>(delta.page);
  if (page > live.table.size()) return "a delta leaves a page out";
  if (page < live.table.size()) {
    if (at(delta.location) != expected(live, page)) {
      return told("a page is read where it does not lie", delta.sequence.value());
    }
    live.table[page] = delta.location;
    return std::nullopt;
  }
  if (fresh[delta.sequence.value()]-- <= 0) return "a page that nobody asked for";
  if (delta.location.tier != kv::Tier::kResident) return "a new page is not resident";
  if (read_by_anybody(delta.location)) return "a new page lies where another is read";
  if (moved_by_anything(delta.location)) return "a new page lies where a transfer is at work";
  at(delta.location) = expected(live, page);
  live.table.push_back(delta.location);
  return std::nullopt;
}

Disagreement LifecycleModel::take_all(const std::vector<kv::TableDelta>& deltas,
                                      std::map<Sequence, std::int64_t>& fresh) {
  for (const kv::TableDelta& delta : deltas) {
    if (Disagreement wrong = take(delta, fresh)) return wrong;
  }
  for (const auto& [sequence, missing] : fresh) {
    if (missing != 0) return told("a sequence did not get its pages", sequence);
  }
  return std::nullopt;
}

Disagreement LifecycleModel::start(const kv::TransferPlan& plan) {
  for (const auto* ops : {&plan.restores, &plan.demotions}) {
    for (const kv::TransferOp& op : *ops) {
      if (op.from.tier == op.to.tier) return "a transfer within a tier";
      if (moved_by_anything(op.from) || moved_by_anything(op.to)) {
        return "a transfer where another is at work";
      }
      if (read_by_anybody(op.to)) return "a transfer overwrites what is read";
      if (static_cast<std::int32_t>(at(op.from).tokens.size()) != config_.page_tokens) {
        return "a transfer of a page that is not full";
      }
      at(op.to) = {.root = -1, .before = {}, .tokens = {}};
      if (op.to.tier == kv::Tier::kDisk) manifest_.erase(op.to.slot);
      if (op.persisted && config_.persistence == kv::Persistence::kOff) {
        return "a page is kept that nobody wants to keep";
      }
      transfers_.emplace(op.id.value(), op);
    }
  }
  if (static_cast<std::int32_t>(transfers_.size()) > config_.max_transfers) {
    return "too many transfers in flight";
  }
  return std::nullopt;
}

// Only where nothing new was given out: freed slots may be in use again.
Disagreement LifecycleModel::nobody_reads(const std::vector<kv::Location>& freed) const {
  for (const kv::Location& slot : freed) {
    if (read_by_anybody(slot)) return "a freed slot is read";
  }
  return std::nullopt;
}

Disagreement LifecycleModel::no_growth(const kv::KvCommit& commit) {
  std::map<Sequence, std::int64_t> none;
  if (!commit.transfers.restores.empty() || !commit.transfers.demotions.empty()) {
    return "a transfer without a plan";
  }
  if (Disagreement wrong = take_all(commit.deltas, none)) return wrong;
  return nobody_reads(commit.freed);
}

Disagreement LifecycleModel::committed(const ModelPlan& plan, const kv::KvCommit& commit) {
  for (const Sequence sequence : plan.releases) leave(sequence);
  std::map<Sequence, std::int64_t> fresh = plan.growths;
  std::size_t next = 0;
  for (const ModelPlan::Admission& admission : plan.admissions) {
    Live& live = sequences_[admission.sequence];
    live.root = admission.root;
    live.reserved = admission.reserved;
    const auto matched = static_cast<std::ptrdiff_t>(admission.matched * config_.page_tokens);
    live.tokens.assign(admission.prompt.begin(), admission.prompt.begin() + matched);
  }
  // Relocations come first, then the matched pages of each admission in order, then growths.
  std::vector<kv::TableDelta> rest;
  std::map<Sequence, std::int64_t> matched;
  for (const ModelPlan::Admission& admission : plan.admissions) {
    matched[admission.sequence] = admission.matched;
  }
  for (; next < commit.deltas.size(); ++next) {
    const kv::TableDelta& delta = commit.deltas[next];
    const auto left = matched.find(delta.sequence.value());
    if (left == matched.end() || left->second == 0) {
      rest.push_back(delta);
      continue;
    }
    --left->second;
    Live& live = sequences_.at(delta.sequence.value());
    const auto page = static_cast<std::size_t>(delta.page);
    if (page != live.table.size()) return "matched pages out of order";
    if (at(delta.location) != expected(live, page)) return "a match is another prompt's page";
    live.table.push_back(delta.location);
  }
  for (const auto& [sequence, missing] : matched) {
    if (missing != 0) return told("matched pages are missing", sequence);
  }
  if (Disagreement wrong = take_all(rest, fresh)) return wrong;
  return start(commit.transfers);
}

Disagreement LifecycleModel::wrote(Sequence sequence, const Tokens& tokens,
                                   const kv::KvCommit& commit) {
  Live& live = sequences_.at(sequence);
  const std::size_t first = live.tokens.size() / static_cast<std::size_t>(config_.page_tokens);
  live.tokens.insert(live.tokens.end(), tokens.begin(), tokens.end());
  for (std::size_t page = first; page < live.table.size(); ++page) {
    const Content content = expected(live, page);
    if (content == at(live.table[page])) continue;
    if (live.table[page].tier != kv::Tier::kResident) return "a page is written below";
    at(live.table[page]) = content;
  }
  return no_growth(commit);
}

Disagreement LifecycleModel::released(Sequence sequence, const kv::KvCommit& commit) {
  leave(sequence);
  return no_growth(commit);
}

Disagreement LifecycleModel::moved(const kv::TransferOp& op, bool filled,
                                   const kv::KvCommit& commit) {
  if (filled) at(op.to) = at(op.from);
  if (filled && op.persisted) manifest_[op.to.slot] = *op.persisted;
  transfers_.erase(op.id.value());
  return no_growth(commit);
}

Disagreement LifecycleModel::lost(const kv::KvCommit& commit) {
  for (const base::SlotId slot : commit.transfers.forgotten) manifest_.erase(slot);
  return no_growth(commit);
}

std::vector<kv::PersistedPage> LifecycleModel::restart() {
  sequences_.clear();
  transfers_.clear();
  std::vector<kv::PersistedPage> pages;
  for (const auto& [slot, page] : manifest_) pages.push_back(page);
  return pages;
}

Disagreement LifecycleModel::compare(const kv::LifecycleController& controller) const {
  for (const auto& [id, live] : sequences_) {
    const base::SequenceId sequence(id);
    if (!controller.has(sequence)) return told("a sequence is unknown", id);
    if (controller.written_tokens(sequence) != static_cast<std::int64_t>(live.tokens.size())) {
      return told("written_tokens() is not what was written", id);
    }
    if (controller.locations(sequence) != live.table) return told("a table was not told of", id);
    for (std::size_t page = 0; page < live.table.size(); ++page) {
      if (at(live.table[page]) != expected(live, page)) return told("a page holds other rows", id);
    }
  }
  const kv::KvStats stats = controller.stats();
  const std::array<std::int32_t, kv::kTiers> slots = {config_.resident_slots, config_.host_slots,
                                                      config_.disk_slots};
  for (const kv::Tier tier : kv::kAllTiers) {
    const kv::TierStats& counted = stats.tier(tier);
    if (counted.free + counted.filling + counted.ready + counted.draining !=
        slots[index_of(tier)]) {
      return "slots by state do not sum up to the capacity";
    }
  }
  if (stats.in_flight != static_cast<std::int32_t>(transfers_.size())) {
    return "other transfers are in flight than were told of";
  }
  return std::nullopt;
}

std::vector<Sequence> LifecycleModel::sequences() const {
  std::vector<Sequence> ids;
  for (const auto& [id, live] : sequences_) ids.push_back(id);
  return ids;
}

std::int64_t LifecycleModel::written(Sequence sequence) const {
  return static_cast<std::int64_t>(sequences_.at(sequence).tokens.size());
}

std::int64_t LifecycleModel::room(Sequence sequence) const {
  const Live& live = sequences_.at(sequence);
  return static_cast<std::int64_t>(live.table.size()) * config_.page_tokens - written(sequence);
}

std::vector<kv::TransferOp> LifecycleModel::transfers() const {
  std::vector<kv::TransferOp> ops;
  for (const auto& [id, op] : transfers_) ops.push_back(op);
  return ops;
}

std::vector<kv::Location> LifecycleModel::read_locations() const {
  std::vector<kv::Location> locations;
  for (const auto& [id, live] : sequences_) {
    locations.insert(locations.end(), live.table.begin(), live.table.end());
  }
  return locations;
}

bool LifecycleModel::is_protected(const kv::Location& location) const {
  int readers = 0;
  for (const auto& [id, live] : sequences_) {
    const auto found = std::ranges::find(live.table, location);
    if (found == live.table.end()) continue;
    ++readers;
    const auto page = static_cast<std::int64_t>(found - live.table.begin());
    if (page == 0 || page + 2 >= written(id) / config_.page_tokens) return true;
  }
  return readers > 1;
}

}  // namespace hisparse::tests
