#include "kv/lifecycle_controller.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/controller_state.h"
#include "kv/invariants.h"

namespace hisparse::kv {
namespace {

void add_page(ControllerState& state, base::SequenceId sequence, base::BlockId block,
              KvCommit& commit) {
  SequenceTable& table = state.table(sequence);
  commit.deltas.push_back({.sequence = sequence,
                           .page = static_cast<std::int32_t>(table.blocks.size()),
                           .location = *state.block(block).location()});
  table.blocks.push_back(block);
}

// Everybody who holds the block reads it where it is best read now.
void tell_holders(const ControllerState& state, base::BlockId id, KvCommit& commit) {
  const Block& block = state.block(id);
  if (block.references == 0) return;
  for (const base::SequenceId sequence : state.holders(id)) {
    commit.deltas.push_back(
        {.sequence = sequence, .page = block.depth, .location = *block.location()});
  }
}

void admit(ControllerState& state, const KvPlan::Admission& admission, KvCommit& commit) {
  const auto [position, fresh] = state.tables.try_emplace(admission.sequence);
  HS_CHECK(fresh);
  position->second.root = admission.root;
  position->second.written = admission.match.tokens;
  position->second.reserved = admission.reserved_pages;
  for (const base::BlockId block : admission.match.blocks) {
    state.reference(block);
    add_page(state, admission.sequence, block, commit);
    ++state.totals.hit_pages[index_of(state.block(block).location()->tier)];
  }
  state.totals.lookup_tokens += admission.match.prompt_tokens;
  state.totals.hit_tokens += admission.match.tokens;
}

void grow(ControllerState& state, const KvPlan::Growth& growth, KvCommit& commit) {
  for (std::int32_t page = 0; page < growth.new_pages; ++page) {
    const auto depth = static_cast<std::int32_t>(state.table(growth.sequence).blocks.size());
    add_page(state, growth.sequence, state.create_block(depth), commit);
  }
}

// In table order: a block and its ancestors get the same stamp, and the eviction order puts the
// deeper one first.
void drop_table(ControllerState& state, base::SequenceId sequence, std::vector<Location>& freed) {
  for (const base::BlockId block : state.table(sequence).blocks) state.unreference(block, freed);
  state.tables.erase(sequence);
}

// The sequence goes over to `shared`, which holds the same content as its own page.
void replace_page(ControllerState& state, base::SequenceId sequence, std::size_t page,
                  base::BlockId shared, KvCommit& commit) {
  SequenceTable& table = state.table(sequence);
  state.reference(shared);
  state.unreference(table.blocks[page], commit.freed);
  table.blocks[page] = shared;
  commit.deltas.push_back({.sequence = sequence,
                           .page = static_cast<std::int32_t>(page),
                           .location = *state.block(shared).location()});
  ++state.totals.deduplicated_blocks;
}

// Publishes a page that has just become full, or finds that its content is published already.
void publish_page(ControllerState& state, base::SequenceId sequence, std::size_t page,
                  KvCommit& commit) {
  if (state.config.prefix_caching == PrefixCaching::kOff) return;
  const SequenceTable& table = state.table(sequence);
  const base::BlockId id = table.blocks[page];
  const base::BlockId parent = page == 0 ? base::BlockId() : table.blocks[page - 1];
  if (parent.valid() && !state.block(parent).indexed) return;

  const Block& block = state.block(id);
  const BlockKey& before = parent.valid() ? state.block(parent).key : table.root;
  const BlockContent content = {.key = child_key(before, block.tokens),
                                .root = table.root,
                                .parent = parent,
                                .tokens = block.tokens};
  const base::BlockId shared = state.index.find(content, state.blocks);
  if (shared.valid()) return replace_page(state, sequence, page, shared, commit);
  // On a collision of keys the page and all behind it stay private.
  (void)state.index_block(id, content);
}

void start_moves(ControllerState& state, const std::vector<KvPlan::Move>& moves,
                 TransferPlan& plan) {
  for (const KvPlan::Move& move : moves) {
    (move.to < move.from ? plan.restores : plan.demotions)
        .push_back(state.start_move(move.block, move.from, move.to, move.reason));
  }
}

// Where nothing is left to exchange nobody looks again before the next re-plan.
void count_exchanges(ControllerState& state, const KvPlan& plan) {
  const auto exchanged =
      std::ranges::count(plan.moves, MoveReason::kExchange, &KvPlan::Move::reason);
  state.exchange_left -= exchanged;
  const bool under_way = std::ranges::any_of(state.in_flight, [](const auto& entry) {
    return entry.second.reason == MoveReason::kExchange;
  });
  if (plan.looked_for_exchange && !under_way) state.exchange_left = 0;
}

// The copy at `location` is bad. Nobody reads it.
void lose_copy(ControllerState& state, const Location& location, KvCommit& commit) {
  const base::BlockId id = state.pool(location.tier).owner(location.slot);
  // It was its reader's alone, or stood behind a page that was lost before it: it has gone.
  if (!id.valid()) return;
  const Block& block = state.block(id);
  ++state.totals.lost_pages;
  // What an earlier process wrote says nothing about the tier as it is now.
  if (!block.adopted) ++state.lost_copies[index_of(location.tier)];
  const bool only = std::ranges::none_of(
      kAllTiers, [&](Tier tier) { return tier != location.tier && block.whole_in(tier); });
  if (only) {
    HS_CHECK(block.references == 0);
    if (block.indexed) state.forget(id, commit.freed);
  } else if (!block.moving.valid()) {
    state.drop_copy(id, location.tier, commit.freed);
  }
}

}  // namespace

LifecycleController::LifecycleController(const ControllerConfig& config)
    : state_(std::make_unique<State>(config)) {}
LifecycleController::~LifecycleController() = default;

const ControllerConfig& LifecycleController::config() const { return state_->config; }

PrefixMatch LifecycleController::match(const BlockKey& root,
                                       std::span<const base::TokenId> tokens) const {
  PrefixMatch match;
  match.prompt_tokens = static_cast<std::int64_t>(tokens.size());
  match.epoch = state_->epoch;
  if (tokens.empty() || state_->config.prefix_caching == PrefixCaching::kOff) return match;

  const auto page_tokens = static_cast<std::size_t>(state_->config.page_tokens);
  const std::size_t pages = (tokens.size() - 1) / page_tokens;
  BlockContent content = {.key = root, .root = root, .parent = base::BlockId(), .tokens = {}};
  for (std::size_t page = 0; page < pages; ++page) {
    content.tokens = tokens.subspan(page * page_tokens, page_tokens);
    content.key = child_key(content.key, content.tokens);
    const base::BlockId block = state_->index.find(content, state_->blocks);
    if (!block.valid()) break;
    match.blocks.push_back(block);
    match.tokens += state_->config.page_tokens;
    content.parent = block;
  }
  return match;
}

KvCommit LifecycleController::commit(const KvPlan& plan) {
  HS_CHECK(plan.epoch == state_->epoch);
  ++state_->epoch;
  KvCommit commit;
  for (const base::SequenceId sequence : plan.releases) {
    drop_table(*state_, sequence, commit.freed);
  }
  for (const base::BlockId block : plan.evictions) state_->evict(block, commit.freed);
  for (const base::BlockId block : plan.drops) {
    state_->drop_copy(block, Tier::kResident, commit.freed);
    tell_holders(*state_, block, commit);
  }
  for (const base::BlockId block : plan.host_drops) {
    state_->drop_copy(block, Tier::kHost, commit.freed);
    tell_holders(*state_, block, commit);
  }
  for (const KvPlan::Admission& admission : plan.admissions) admit(*state_, admission, commit);
  for (const KvPlan::Growth& growth : plan.growths) grow(*state_, growth, commit);
  start_moves(*state_, plan.moves, commit.transfers);
  count_exchanges(*state_, plan);
  return commit;
}

KvCommit LifecycleController::written(base::SequenceId sequence,
                                      std::span<const base::TokenId> tokens) {
  ++state_->epoch;
  KvCommit commit;
  commit.replan = state_->heat.computed(static_cast<std::int64_t>(tokens.size()));
  if (commit.replan) state_->exchange_left = state_->config.exchange_pages;
  SequenceTable& table = state_->table(sequence);
  const auto page_tokens = static_cast<std::size_t>(state_->config.page_tokens);
  const auto already = static_cast<std::size_t>(table.written);
  HS_CHECK(tokens.size() <= table.blocks.size() * page_tokens - already);

  while (!tokens.empty()) {
    const std::size_t page = static_cast<std::size_t>(table.written) / page_tokens;
    const base::BlockId id = table.blocks[page];
    Block& block = state_->block(id);
    HS_CHECK(block.references == 1 && !block.indexed);
    const std::size_t count = std::min(page_tokens - block.tokens.size(), tokens.size());
    block.tokens.insert(block.tokens.end(), tokens.begin(),
                        tokens.begin() + static_cast<std::ptrdiff_t>(count));
    tokens = tokens.subspan(count);
    table.written += static_cast<std::int64_t>(count);
    if (state_->full(block)) {
      state_->set_copy_state(id, Tier::kResident, CopyState::kReady);
      publish_page(*state_, sequence, page, commit);
    }
  }
  return commit;
}

void LifecycleController::observe(base::SequenceId sequence, std::span<const PageMass> masses) {
  const SequenceTable& table = std::as_const(*state_).table(sequence);
  // Where the ring is too small for all, the pages that fall out are others each time.
  constexpr std::uint64_t kStride = 7919;
  const std::size_t first =
      masses.empty() ? 0 : state_->observed_queries++ * kStride % masses.size();
  for (std::size_t i = 0; i < masses.size(); ++i) {
    const PageMass& seen = masses[(first + i) % masses.size()];
    HS_CHECK(seen.page >= 0 && static_cast<std::size_t>(seen.page) < table.blocks.size());
    state_->heat.observe(table.blocks[static_cast<std::size_t>(seen.page)], seen.mass);
  }
}

bool LifecycleController::wants_observations() const {
  const SlotPool& resident = std::as_const(*state_).pool(Tier::kResident);
  return state_->heat.on() && resident.free() <= resident.capacity() / 2;
}

KvCommit LifecycleController::release(base::SequenceId sequence) {
  ++state_->epoch;
  KvCommit commit;
  drop_table(*state_, sequence, commit.freed);
  return commit;
}

KvCommit LifecycleController::apply(const TransferDone& done) {
  KvCommit commit;
  const auto found = state_->in_flight.find(done.id);
  if (found == state_->in_flight.end()) {
    ++state_->totals.stray_completions;
    return commit;
  }
  ++state_->epoch;
  const TransferOp op = found->second;
  state_->end_move(op.id, done.status.ok(), commit.freed);
  const auto holds = [&](const Location& location) {
    return state_->pool(location.tier).owner(location.slot) == op.block;
  };
  if (done.status.ok() && op.to.tier < op.from.tier && holds(op.to)) {
    tell_holders(*state_, op.block, commit);
  }
  if (absl::IsDataLoss(done.status) && holds(op.from)) commit.lost = op.from;
  return commit;
}

std::vector<base::SequenceId> LifecycleController::readers(const Location& location) const {
  const base::BlockId id = state_->pool(location.tier).owner(location.slot);
  if (!id.valid() || state_->block(id).location() != location) return {};
  return state_->holders(id);
}

KvCommit LifecycleController::lose(const Location& location) {
  ++state_->epoch;
  KvCommit commit;
  lose_copy(*state_, location, commit);
  if (location.tier == Tier::kDisk) commit.transfers.forgotten.push_back(location.slot);
  // The place may be bad, not the page.
  state_->pool(location.tier).use_last(location.slot);
  return commit;
}

std::int64_t LifecycleController::written_tokens(base::SequenceId sequence) const {
  return std::as_const(*state_).table(sequence).written;
}

std::vector<Location> LifecycleController::locations(base::SequenceId sequence) const {
  const SequenceTable& table = std::as_const(*state_).table(sequence);
  std::vector<Location> locations;
  locations.reserve(table.blocks.size());
  for (const base::BlockId block : table.blocks) {
    locations.push_back(*state_->block(block).location());
  }
  return locations;
}

bool LifecycleController::has(base::SequenceId sequence) const {
  return state_->tables.contains(sequence);
}

bool LifecycleController::transfers_in_flight() const { return !state_->in_flight.empty(); }

KvStats LifecycleController::stats() const {
  KvStats stats;
  for (const Tier tier : kAllTiers) {
    const SlotPool& pool = state_->pool(tier);
    stats.tiers[index_of(tier)] = {.capacity = pool.capacity(),
                                   .free = pool.free(),
                                   .filling = pool.count(CopyState::kFilling),
                                   .ready = pool.count(CopyState::kReady),
                                   .draining = pool.count(CopyState::kDraining),
                                   .closed = state_->closed(tier)};
  }
  const KvTotals& totals = state_->totals;
  stats.cached = static_cast<std::int32_t>(state_->cached.size());
  stats.referenced =
      static_cast<std::int32_t>(state_->blocks.size() - state_->free_blocks.size()) - stats.cached;
  stats.in_flight = static_cast<std::int32_t>(state_->in_flight.size());
  stats.unpersisted = static_cast<std::int32_t>(state_->unpersisted.size());
  stats.lookup_tokens = totals.lookup_tokens;
  stats.hit_tokens = totals.hit_tokens;
  stats.hit_pages = totals.hit_pages;
  stats.dropped_blocks = totals.dropped_blocks;
  stats.deduplicated_blocks = totals.deduplicated_blocks;
  stats.stray_completions = totals.stray_completions;
  stats.failed_transfers = totals.failed_transfers;
  stats.lost_pages = totals.lost_pages;
  stats.adopted_pages = totals.adopted_pages;
  stats.heat_observations = state_->heat.observations();
  stats.heat_observations_lost = state_->heat.lost();
  stats.heat_replans = state_->heat.replans();
  stats.exchanged_pages = totals.exchanged_pages;
  stats.moved = totals.moved;
  stats.moved_for = totals.moved_for;
  return stats;
}

std::optional<std::string> LifecycleController::check_invariants() const {
  return find_violation(*state_);
}

}  // namespace hisparse::kv
