// Random operations on the LifecycleController against LifecycleModel, all invariants recomputed
// after each. HISPARSE_SEED=n replays one seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kv/lifecycle_controller.h"
#include "tests/property/lifecycle_chance.h"
#include "tests/property/lifecycle_coverage.h"
#include "tests/property/lifecycle_model.h"

namespace hisparse::tests {
namespace {

constexpr std::uint64_t kSeeds = 1200;
constexpr int kOperations = 1000;
constexpr int kRoots = 2;

// A failed HS_CHECK aborts before GoogleTest can print its trace, so the seed is told here.
std::uint64_t running_seed = 0;
void tell_seed(int) {
  std::fprintf(stderr, "aborted in seed %llu\n", static_cast<unsigned long long>(running_seed));
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

class Walk final {
 public:
  Walk(std::uint64_t seed, Coverage& coverage)
      : chance_(seed), coverage_(coverage), config_(chance_.config()), model_(config_) {
    controller_.emplace(config_);
    for (int root = 0; root < kRoots; ++root) {
      roots_.push_back(kv::root_key({std::to_string(root), "model", "f32"}));
    }
  }

  void run() {
    for (int operation = 0; operation < kOperations; ++operation) {
      const std::string what = step();
      const Disagreement violation = controller_->check_invariants();
      ASSERT_FALSE(violation.has_value()) << *violation << " after " << operation << ": " << what;
      ASSERT_FALSE(wrong_.has_value()) << *wrong_ << " in " << operation << ": " << what;
      const Disagreement wrong = model_.compare(*controller_);
      ASSERT_FALSE(wrong.has_value()) << *wrong << " after " << operation << ": " << what;
    }
    drain();
    note_coverage();
  }

 private:
  std::optional<Sequence> any_sequence() {
    const std::vector<Sequence> ids = model_.sequences();
    if (ids.empty()) return std::nullopt;
    return chance_.one_of(ids);
  }

  void expect(bool condition, const char* what) {
    if (!condition && !wrong_) wrong_ = what;
  }
  void keep(Disagreement wrong) {
    if (wrong && !wrong_) wrong_ = std::move(wrong);
  }

  std::string step() {
    if (chance_.below(200) == 0) return restart();
    switch (chance_.below(16)) {
      case 0:
        return look_up();
      case 1:
        return release();
      case 2:
        return stray();
      case 3:
        return lose_somewhere();
      case 4:
      case 5:
      case 6:
        return finish_transfer();
      case 7:
      case 8:
      case 9:
        return write();
      case 10:
      case 11:
        return observe();
      default:
        return plan();
    }
  }

  // A query that looked at some pages of a sequence; a few masses are nonsense.
  std::string observe() {
    const auto sequence = any_sequence();
    if (!sequence) return "nothing";
    const std::int64_t pages = model_.pages_held(*sequence, {});
    std::vector<kv::PageMass> masses;
    for (std::int32_t page = 0; page < pages; ++page) {
      if (chance_.below(4) == 0) continue;
      const float mass = chance_.below(20) == 0 ? std::numeric_limits<float>::quiet_NaN()
                                                : static_cast<float>(chance_.below(1000)) / 999.0f;
      masses.push_back({.page = page, .mass = chance_.below(2) == 0 ? 0.0f : mass});
    }
    controller_->observe(base::SequenceId(*sequence), masses);
    return "observation";
  }

  // One re-plan moves so many pages at the most, and none that is protected goes for another.
  void note_exchanges(const kv::KvCommit& commit) {
    for (const auto* ops : {&commit.transfers.restores, &commit.transfers.demotions}) {
      for (const kv::TransferOp& op : *ops) {
        if (op.reason != kv::MoveReason::kExchange) continue;
        ++exchanged_since_replan_;
        expect(op.to.tier < op.from.tier || !model_.is_protected(op.from),
               "a protected page goes for another");
      }
    }
    expect(exchanged_since_replan_ <= config_.exchange_pages, "too many pages were exchanged");
  }

  kv::PrefixMatch checked_match(int root, const Tokens& tokens) {
    kv::PrefixMatch match = controller_->match(roots_[static_cast<std::size_t>(root)], tokens);
    const auto pages = static_cast<std::int64_t>(match.blocks.size());
    expect(match.tokens == pages * config_.page_tokens, "match counts other tokens than its pages");
    expect(match.tokens < static_cast<std::int64_t>(tokens.size()), "match leaves nothing to do");
    if (config_.prefix_caching == kv::PrefixCaching::kOn) {
      expect(pages >= model_.pages_held_of(root, tokens), "match misses pages that are in use");
    } else {
      expect(pages == 0, "match without prefix caching");
    }
    return match;
  }

  std::string look_up() {
    checked_match(chance_.below(kRoots), chance_.prompt());
    return "match";
  }

  void release(Sequence sequence) {
    keep(model_.released(sequence, controller_->release(base::SequenceId(sequence))));
    expect(!controller_->has(base::SequenceId(sequence)), "a released sequence is still known");
  }

  std::string release() {
    const auto sequence = any_sequence();
    if (!sequence) return "nothing";
    release(*sequence);
    return "release";
  }

  std::string write() {
    const auto sequence = any_sequence();
    if (!sequence) return "nothing";
    const std::int64_t room = model_.room(*sequence);
    const std::int64_t count =
        chance_.below(3) == 0 ? room : chance_.below(static_cast<int>(room) + 1);
    const Tokens made = chance_.tokens(model_.written(*sequence), count);
    const kv::KvCommit commit = controller_->written(base::SequenceId(*sequence), made);
    if (commit.replan) exchanged_since_replan_ = 0;
    keep(model_.wrote(*sequence, made, commit));
    return "written";
  }

  std::string stray() {
    const kv::TransferDone done = {.id = base::TransferId(1'000'000 + chance_.below(100)),
                                   .status = absl::OkStatus()};
    const std::int64_t strays = controller_->stats().stray_completions;
    (void)controller_->apply(done);
    expect(controller_->stats().stray_completions == strays + 1,
           "a stray completion was not counted");
    return "stray completion";
  }

  // Whoever reads a bad copy begins again.
  void lose(const kv::Location& location) {
    for (const base::SequenceId id : controller_->readers(location)) release(id.value());
    keep(model_.lost(controller_->lose(location)));
    ++coverage_.lost;
  }

  // The process dies, and the next one takes over what is on disk, and some of what is not.
  std::string restart() {
    if (config_.persistence == kv::Persistence::kOff) return "nothing";
    note_coverage();
    const std::vector<kv::PersistedPage> pages = model_.restart();
    config_.first_transfer += 1'000'000'000;
    controller_.emplace(config_);
    std::vector<kv::PersistedPage> told = pages;
    if (!told.empty() && chance_.below(2) == 0)
      told.erase(told.begin() + chance_.below(static_cast<int>(told.size())));
    if (!told.empty() && chance_.below(4) == 0) told.push_back(chance_.one_of(told));
    std::ranges::shuffle(told, chance_.engine());
    const std::int64_t adopted = controller_->adopt(told);
    expect(adopted <= static_cast<std::int64_t>(pages.size()), "more is adopted than there is");
    coverage_.adopted += adopted;
    return "restart";
  }

  // A step has found a bad page.
  std::string lose_somewhere() {
    const std::vector<kv::Location> locations = model_.read_locations();
    if (locations.empty() || chance_.below(4) != 0) return "nothing";
    const kv::Location location = chance_.one_of(locations);
    if (location.tier != kv::Tier::kDisk) return "nothing";
    lose(location);
    return "a bad page on disk";
  }

  void finish(const kv::TransferOp& op, const absl::Status& status) {
    const kv::TransferDone done = {.id = op.id, .status = status};
    const kv::KvCommit commit = controller_->apply(done);
    keep(model_.moved(op, status.ok(), commit));
    if (commit.lost) lose(*commit.lost);
    (status.ok() ? (op.to.tier > op.from.tier ? coverage_.down : coverage_.up)
                 : coverage_.failed)++;
    if (chance_.below(8) == 0) (void)controller_->apply(done);  // told twice
  }

  std::string finish_transfer() {
    const std::vector<kv::TransferOp> ops = model_.transfers();
    if (ops.empty()) return "nothing";
    const kv::TransferOp op = chance_.one_of(ops);
    absl::Status status;
    if (chance_.below(12) == 0) status = absl::UnavailableError("x");
    if (op.from.tier == kv::Tier::kDisk && chance_.below(6) == 0) status = absl::DataLossError("x");
    finish(op, status);
    return "transfer done";
  }

  std::string plan() {
    kv::PlanBuilder builder = controller_->plan();
    ModelPlan wanted;
    const int calls = 1 + chance_.below(6);
    for (int call = 0; call < calls; ++call) {
      switch (chance_.below(6)) {
        case 0:
          plan_release(builder, wanted);
          break;
        case 1:
        case 2:
          plan_extend(builder, wanted);
          break;
        default:
          plan_admit(builder, wanted);
      }
      check_available(builder, wanted);
    }
    const kv::KvPlan plan = std::move(builder).finish();
    if (chance_.below(5) == 0) return "dropped plan";
    const kv::KvCommit commit = controller_->commit(plan);
    keep(model_.committed(wanted, commit));
    note_exchanges(commit);
    coverage_.preempted += static_cast<std::int64_t>(wanted.releases.size());
    return "commit";
  }

  // A transfer may hold a page that nobody uses any more, the plan's admissions hold pages that
  // were in no table, and a tier that could not be written takes no more pages; otherwise the count
  // is exact.
  void check_available(const kv::PlanBuilder& builder, const ModelPlan& wanted) {
    const std::int64_t most = model_.available(wanted);
    expect(builder.available_pages() <= most, "more pages are available than there are");
    if (controller_->stats().failed_transfers > 0) return;
    auto held = static_cast<std::int64_t>(model_.transfers().size());
    for (const ModelPlan::Admission& admission : wanted.admissions) held += admission.matched;
    expect(builder.available_pages() >= most - held, "fewer pages are available than there are");
  }

  void plan_release(kv::PlanBuilder& builder, ModelPlan& wanted) {
    const auto sequence = any_sequence();
    if (!sequence || wanted.releases_sequence(*sequence) || wanted.growths.contains(*sequence))
      return;
    if (touched_in(wanted, *sequence)) return;
    builder.release(base::SequenceId(*sequence));
    wanted.releases.push_back(*sequence);
  }

  // Extending by nothing counts too.
  bool touched_in(const ModelPlan& wanted, Sequence sequence) const {
    return wanted.growths.contains(sequence) || wanted.admission_of(sequence) != nullptr;
  }

  void plan_extend(kv::PlanBuilder& builder, ModelPlan& wanted) {
    std::optional<Sequence> sequence = any_sequence();
    if (!wanted.admissions.empty() && chance_.below(2) == 0)
      sequence = wanted.admissions[0].sequence;
    if (!sequence) return;
    if (wanted.releases_sequence(*sequence) && wanted.admission_of(*sequence) == nullptr) return;
    const base::SequenceId id(*sequence);
    const std::int64_t total = chance_.below(9 * config_.page_tokens);
    const std::int64_t held = model_.pages_held(*sequence, wanted);
    const std::int64_t missing = std::max<std::int64_t>(model_.pages_for(total) - held, 0);
    const std::int64_t beyond =
        std::max<std::int64_t>(model_.pages_for(total) - model_.reserved(*sequence, wanted), 0);
    expect(builder.pages_missing(id, total) == beyond, "pages_missing() is wrong");
    const std::int64_t available = builder.available_pages();
    const std::int64_t with_room = builder.tokens_with_room(id, total);
    expect(with_room <= total, "tokens_with_room() is more than was asked for");
    switch (builder.extend(id, total)) {
      case kv::Grant::kNow:
        expect(beyond == 0 || beyond <= available, "extend() gave more than was available");
        expect(with_room == total, "tokens_with_room() is not what extend() gives");
        wanted.growths[*sequence] += missing;
        return;
      case kv::Grant::kLater:
        ++coverage_.later;
        expect(beyond == 0 || beyond <= available, "extend() promises more than is available");
        expect(with_room < total, "tokens_with_room() is more than extend() gives");
        return;
      case kv::Grant::kNoRoom:
        ++coverage_.never;
        expect(beyond > available, "extend() finds no room where there is some");
        return;
      case kv::Grant::kNoSlot:
        ++coverage_.never;
        expect(with_room < total, "tokens_with_room() is more than extend() gives");
        expect(model_.transfers().empty(), "extend() gives up while pages are on their way");
        return;
    }
  }

  // A new sequence, or one that this very plan has preempted and starts again.
  void plan_admit(kv::PlanBuilder& builder, ModelPlan& wanted) {
    Sequence sequence = next_sequence_++;
    if (!wanted.releases.empty() && chance_.below(4) == 0 && wanted.admissions.empty()) {
      sequence = wanted.releases[0];
    }
    ModelPlan::Admission admission = {.sequence = sequence,
                                      .root = chance_.below(kRoots),
                                      .prompt = chance_.prompt(),
                                      .matched = 0,
                                      .reserved = 0};
    const kv::PrefixMatch match = checked_match(admission.root, admission.prompt);
    const std::int64_t total =
        match.tokens +
        chance_.below(static_cast<int>(admission.prompt.size()) + config_.page_tokens);
    const base::SequenceId id(sequence);
    expect(builder.pages_missing(id, total) == model_.pages_for(total),
           "pages_missing() of an unknown sequence is not all of them");
    admission.matched = static_cast<std::int64_t>(match.blocks.size());
    admission.reserved = std::max(model_.pages_for(total), admission.matched);
    const std::int64_t before = builder.available_pages();
    const bool admitted =
        builder.admit(id, roots_[static_cast<std::size_t>(admission.root)], match, total);
    // Matched pages that nobody uses take room too.
    const std::int64_t needed = admission.reserved - admission.matched;
    if (admitted) {
      const std::int64_t taken = before - builder.available_pages();
      expect(taken >= needed && taken <= admission.reserved,
             "admit() took another number of pages");
      wanted.admissions.push_back(std::move(admission));
    } else {
      // What the plan has given out may count on giving up pages that match.
      expect(needed + admission.matched > before || !wanted.growths.empty(),
             "admit() refused what fits");
    }
  }

  // With all requests gone and all transfers done nothing is in use.
  void drain() {
    for (const Sequence sequence : model_.sequences()) release(sequence);
    for (const kv::TransferOp& op : model_.transfers()) finish(op, absl::OkStatus());
    persist_all();
    ASSERT_FALSE(wrong_.has_value()) << *wrong_ << " at the end";
    ASSERT_EQ(controller_->check_invariants(), std::nullopt);
    const kv::KvStats stats = controller_->stats();
    ASSERT_EQ(stats.referenced, 0);
    ASSERT_EQ(stats.in_flight, 0);
    for (const kv::TierStats& tier : stats.tiers) ASSERT_EQ(tier.filling + tier.draining, 0);
  }

  // An idle engine copies to disk what the next process wants, as far as there is room.
  void persist_all() {
    for (int round = 0; controller_->stats().unpersisted > 0 && round < 200; ++round) {
      keep(model_.committed({}, controller_->commit(controller_->plan().finish())));
      for (const kv::TransferOp& op : model_.transfers()) finish(op, absl::OkStatus());
    }
    const kv::KvStats stats = controller_->stats();
    const kv::TierStats& disk = stats.tier(kv::Tier::kDisk);
    expect(stats.unpersisted == 0 || disk.free == 0 || disk.closed, "pages are left unpersisted");
  }

  void note_coverage() {
    const kv::KvStats stats = controller_->stats();
    coverage_.hits += stats.hit_tokens;
    coverage_.dropped += stats.dropped_blocks;
    coverage_.deduplicated += stats.deduplicated_blocks;
    coverage_.replans += stats.heat_replans;
    coverage_.unobserved += stats.heat_observations_lost;
    coverage_.exchanged += stats.exchanged_pages;
  }

  Chance chance_;
  Coverage& coverage_;
  kv::ControllerConfig config_;
  std::optional<kv::LifecycleController> controller_;
  LifecycleModel model_;
  std::vector<kv::BlockKey> roots_;
  Sequence next_sequence_ = 0;
  std::int64_t exchanged_since_replan_ = 0;
  Disagreement wrong_;
};

TEST(LifecycleModel, RandomOperationsAgreeWithTheModelAndKeepEveryInvariant) {
  std::signal(SIGABRT, tell_seed);
  Coverage coverage;
  const char* replayed = std::getenv("HISPARSE_SEED");
  const std::uint64_t first = replayed ? std::strtoull(replayed, nullptr, 10) : 0;
  const std::uint64_t end = replayed ? first + 1 : kSeeds;
  for (std::uint64_t seed = first; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    running_seed = seed;
    Walk(seed, coverage).run();
    if (HasFatalFailure()) return;
  }
  coverage.print();
  if (!replayed) coverage.expect_met();
}

}  // namespace
}  // namespace hisparse::tests
