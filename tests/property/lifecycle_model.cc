#include "tests/property/lifecycle_model.h"

#include <algorithm>
#include <utility>

namespace hisparse::tests {
namespace {

using Disagreement = std::optional<std::string>;

std::vector<Slot> plain(const std::vector<base::SlotId>& slots) {
  std::vector<Slot> values;
  for (const base::SlotId slot : slots) values.push_back(slot.value());
  return values;
}

Disagreement equal(std::int64_t actual, std::int64_t expected, const char* what) {
  if (actual == expected) return std::nullopt;
  return std::string(what) + ": " + std::to_string(actual) + ", the model says " +
         std::to_string(expected);
}

}  // namespace

std::int64_t ModelPlan::claimed() const {
  std::int64_t pages = 0;
  for (const auto& [sequence, count] : growths) pages += count;
  return pages;
}

std::int64_t& ModelPlan::growth_of(Sequence sequence) {
  for (auto& [grown, count] : growths) {
    if (grown == sequence) return count;
  }
  return growths.emplace_back(sequence, 0).second;
}

LifecycleModel::LifecycleModel(const kv::ControllerConfig& config) : config_(config) {}

std::optional<LifecycleModel::Node> LifecycleModel::known_node(Node parent,
                                                               const Tokens& page) const {
  const auto found = nodes_.find({parent, page});
  if (found == nodes_.end()) return std::nullopt;
  return found->second;
}

LifecycleModel::Node LifecycleModel::node_of(Node parent, const Tokens& page) {
  const auto next = static_cast<Node>(nodes_.size());
  return nodes_.try_emplace({parent, page}, next).first->second;
}

std::vector<Slot> LifecycleModel::match(int root, const Tokens& prompt) const {
  std::vector<Slot> slots;
  Node node = root_node(root);
  const auto page_tokens = static_cast<std::size_t>(config_.page_tokens);
  for (std::size_t end = page_tokens; end < prompt.size(); end += page_tokens) {
    const auto last = prompt.begin() + static_cast<std::ptrdiff_t>(end);
    const auto next = known_node(node, Tokens(last - config_.page_tokens, last));
    const auto found = next ? published_.find(*next) : published_.end();
    if (found == published_.end()) break;
    node = *next;
    slots.push_back(found->second);
  }
  return slots;
}

std::set<Slot> LifecycleModel::held_by(const ModelPlan& plan) const {
  std::set<Slot> slots;
  for (const auto& [sequence, live] : sequences_) {
    if (std::ranges::find(plan.releases, sequence) != plan.releases.end()) continue;
    slots.insert(live.table.begin(), live.table.end());
  }
  for (const ModelPlan::Admission& admission : plan.admissions) {
    slots.insert(admission.matched.begin(), admission.matched.end());
  }
  return slots;
}

bool LifecycleModel::held(Slot slot) const { return held_by({}).contains(slot); }

std::int64_t LifecycleModel::available(const ModelPlan& plan) const {
  return config_.resident_slots - static_cast<std::int64_t>(held_by(plan).size()) - plan.claimed();
}

std::int64_t LifecycleModel::pages_held(Sequence sequence, const ModelPlan& plan) const {
  std::int64_t pages = 0;
  const bool released = std::ranges::find(plan.releases, sequence) != plan.releases.end();
  const auto live = sequences_.find(sequence);
  if (live != sequences_.end() && !released) {
    pages = static_cast<std::int64_t>(live->second.table.size());
  }
  for (const ModelPlan::Admission& admission : plan.admissions) {
    if (admission.sequence == sequence) pages = static_cast<std::int64_t>(admission.matched.size());
  }
  for (const auto& [grown, count] : plan.growths) {
    if (grown == sequence) pages += count;
  }
  return pages;
}

std::int64_t LifecycleModel::pages_for(std::int64_t tokens) const {
  std::int64_t pages = 0;
  while (pages * config_.page_tokens < tokens) ++pages;
  return pages;
}

// What a release frees: pages that are in no index. The others become older by its time.
Disagreement LifecycleModel::leave(Sequence sequence, std::vector<Slot>& freed) {
  const std::vector<Slot> table = sequences_.at(sequence).table;
  sequences_.erase(sequence);
  for (const Slot slot : table) {
    const auto published = published_slots_.find(slot);
    if (published != published_slots_.end()) {
      published->second.last_use = now_;
      continue;
    }
    if (held(slot)) return "a private slot is in two tables";
    freed.push_back(slot);
    contents_.erase(slot);
  }
  return std::nullopt;
}

// The evicted pages must be the least recently used that the plan does not pin, deeper ones first,
// and no more than are needed.
Disagreement LifecycleModel::evict(const std::vector<Slot>& evicted, const ModelPlan& plan) {
  using Rank = std::pair<std::uint64_t, std::int32_t>;
  const std::set<Slot> pinned = held_by(plan);
  std::vector<Rank> expected;
  for (const auto& [slot, page] : published_slots_) {
    if (!pinned.contains(slot)) expected.emplace_back(page.last_use, -page.page);
  }
  std::ranges::sort(expected);
  const std::int64_t free = config_.resident_slots - static_cast<std::int64_t>(contents_.size());
  const std::int64_t needed = std::max<std::int64_t>(plan.claimed() - free, 0);
  if (auto wrong = equal(static_cast<std::int64_t>(evicted.size()), needed, "evictions")) {
    return wrong;
  }
  expected.resize(static_cast<std::size_t>(needed));

  std::vector<Rank> actual;
  for (const Slot slot : evicted) {
    const auto page = published_slots_.find(slot);
    if (page == published_slots_.end()) return "freed a slot that was free or private";
    if (pinned.contains(slot)) return "evicted a slot that the plan or a sequence uses";
    actual.emplace_back(page->second.last_use, -page->second.page);
    for (const auto& [other, child] : published_slots_) {
      if (child.parent == page->second.node) return "evicted a parent before its child";
    }
    published_.erase(page->second.node);
    published_slots_.erase(page);
    contents_.erase(slot);
  }
  dropped_ += needed;
  if (actual != expected) return "evicted others than the least recently used";
  return std::nullopt;
}

Disagreement LifecycleModel::expect_deltas(const std::vector<kv::TableDelta>& deltas,
                                           const ModelPlan& plan) {
  std::size_t next = 0;
  const auto take = [&](Sequence sequence, Live& live) -> Disagreement {
    if (next == deltas.size()) return "a delta is missing";
    const kv::TableDelta& delta = deltas[next++];
    if (delta.sequence.value() != sequence) return "a delta names another sequence";
    if (delta.page != static_cast<std::int32_t>(live.table.size())) return "a delta skips a page";
    live.table.push_back(delta.slot.value());
    return std::nullopt;
  };
  for (const ModelPlan::Admission& admission : plan.admissions) {
    Live& live = sequences_[admission.sequence];
    live.root = root_node(admission.root);
    for (const Slot slot : admission.matched) {
      if (auto wrong = take(admission.sequence, live)) return wrong;
      if (live.table.back() != slot) return "a matched page is in another slot";
      const Tokens& content = contents_.at(slot);
      live.tokens.insert(live.tokens.end(), content.begin(), content.end());
    }
    lookups_ += admission.prompt_tokens;
    hits_ += static_cast<std::int64_t>(live.tokens.size());
  }
  for (const auto& [sequence, count] : plan.growths) {
    Live& live = sequences_.at(sequence);
    for (std::int64_t page = 0; page < count; ++page) {
      if (auto wrong = take(sequence, live)) return wrong;
      if (in_use(live.table.back())) return "a new page is in a slot that is in use";
      contents_[live.table.back()] = {};
    }
  }
  if (next != deltas.size()) return "there are more deltas than new pages";
  return std::nullopt;
}

Disagreement LifecycleModel::committed(const ModelPlan& plan, const kv::KvCommit& commit) {
  ++now_;
  std::vector<Slot> by_release;
  for (const Sequence sequence : plan.releases) {
    if (auto wrong = leave(sequence, by_release)) return wrong;
  }
  const std::vector<Slot> freed = plain(commit.freed);
  if (freed.size() < by_release.size() ||
      !std::equal(by_release.begin(), by_release.end(), freed.begin())) {
    return "a release freed other slots than its private ones";
  }
  const auto first_evicted = freed.begin() + static_cast<std::ptrdiff_t>(by_release.size());
  ModelPlan after = plan;  // its releases are done
  after.releases.clear();
  if (auto wrong = evict({first_evicted, freed.end()}, after)) return wrong;
  return expect_deltas(commit.deltas, plan);
}

void LifecycleModel::finish_page(Sequence sequence, std::size_t page, std::vector<Slot>& freed,
                                 std::vector<kv::TableDelta>& deltas) {
  if (config_.prefix_caching == kv::PrefixCaching::kOff) return;
  Live& live = sequences_.at(sequence);
  const Slot own = live.table[page];
  const Node parent = page == 0 ? live.root : published_slots_.at(live.table[page - 1]).node;
  const Node node = node_of(parent, contents_.at(own));
  const auto [there, fresh] = published_.try_emplace(node, own);
  if (fresh) {
    published_slots_[own] = {
        .parent = parent, .node = node, .last_use = now_, .page = static_cast<std::int32_t>(page)};
    return;
  }
  freed.push_back(own);
  contents_.erase(own);
  live.table[page] = there->second;
  deltas.push_back(
      {base::SequenceId(sequence), static_cast<std::int32_t>(page), base::SlotId(there->second)});
  ++deduplicated_;
}

Disagreement LifecycleModel::wrote(Sequence sequence, const Tokens& tokens,
                                   const kv::KvCommit& commit) {
  ++now_;
  Live& live = sequences_.at(sequence);
  const auto page_tokens = static_cast<std::size_t>(config_.page_tokens);
  std::vector<Slot> freed;
  std::vector<kv::TableDelta> deltas;
  for (const base::TokenId token : tokens) {
    const std::size_t page = live.tokens.size() / page_tokens;
    live.tokens.push_back(token);
    contents_.at(live.table.at(page)).push_back(token);
    if (live.tokens.size() % page_tokens == 0) finish_page(sequence, page, freed, deltas);
  }
  if (plain(commit.freed) != freed) return "writing freed other slots than its duplicates";
  if (commit.deltas != deltas) return "writing gave other deltas than those of its duplicates";
  return std::nullopt;
}

Disagreement LifecycleModel::released(Sequence sequence, const kv::KvCommit& commit) {
  ++now_;
  std::vector<Slot> freed;
  if (auto wrong = leave(sequence, freed)) return wrong;
  if (plain(commit.freed) != freed) return "a release freed other slots than its private ones";
  if (!commit.deltas.empty()) return "a release gave deltas";
  return std::nullopt;
}

Disagreement LifecycleModel::compare(const kv::LifecycleController& controller) const {
  const kv::KvStats stats = controller.stats();
  std::int64_t filling = 0;
  for (const auto& [slot, content] : contents_) {
    if (content.size() < static_cast<std::size_t>(config_.page_tokens)) ++filling;
  }
  const auto used = static_cast<std::int64_t>(contents_.size());
  const auto referenced = static_cast<std::int64_t>(held_by({}).size());
  const std::vector<std::tuple<std::int64_t, std::int64_t, const char*>> numbers = {
      {stats.free, config_.resident_slots - used, "free"},
      {stats.filling, filling, "filling"},
      {stats.ready, used - filling, "ready"},
      {stats.draining, 0, "draining"},
      {stats.referenced, referenced, "referenced"},
      {stats.cached, used - referenced, "cached"},
      {stats.lookup_tokens, lookups_, "lookup_tokens"},
      {stats.hit_tokens, hits_, "hit_tokens"},
      {stats.dropped_blocks, dropped_, "dropped_blocks"},
      {stats.deduplicated_blocks, deduplicated_, "deduplicated_blocks"},
      {stats.stray_completions, strays_, "stray_completions"}};
  for (const auto& [actual, expected, what] : numbers) {
    if (auto wrong = equal(actual, expected, what)) return wrong;
  }
  for (const auto& [sequence, live] : sequences_) {
    const base::SequenceId id(sequence);
    if (!controller.has(id)) return "the controller has lost a sequence";
    if (auto wrong = equal(controller.written_tokens(id),
                           static_cast<std::int64_t>(live.tokens.size()), "written")) {
      return wrong;
    }
    Tokens read;
    for (const base::SlotId slot : controller.slots(id)) {
      const auto content = contents_.find(slot.value());
      if (content == contents_.end()) return "a table names a free slot";
      read.insert(read.end(), content->second.begin(), content->second.end());
    }
    if (read != live.tokens) return "a sequence does not read back what it wrote";
    if (plain(controller.slots(id)) != live.table) return "the deltas do not give the table";
  }
  return std::nullopt;
}

std::vector<Sequence> LifecycleModel::sequences() const {
  std::vector<Sequence> ids;
  for (const auto& [sequence, live] : sequences_) ids.push_back(sequence);
  return ids;
}

std::int64_t LifecycleModel::written(Sequence sequence) const {
  return static_cast<std::int64_t>(sequences_.at(sequence).tokens.size());
}

std::int64_t LifecycleModel::room(Sequence sequence) const {
  const Live& live = sequences_.at(sequence);
  return static_cast<std::int64_t>(live.table.size()) * config_.page_tokens -
         static_cast<std::int64_t>(live.tokens.size());
}

}  // namespace hisparse::tests
