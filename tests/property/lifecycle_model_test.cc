// Random operations on the LifecycleController against LifecycleModel, all invariants recomputed
// after each. HISPARSE_SEED=n replays one seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kv/lifecycle_controller.h"
#include "tests/property/lifecycle_model.h"

namespace hisparse::tests {
namespace {

constexpr std::uint64_t kSeeds = 1200;
constexpr int kOperations = 1000;
constexpr int kRoots = 2;
constexpr std::array kPoolSizes = {0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 48, 64};
constexpr std::array kPageTokens = {1, 2, 4, 16};

// A failed HS_CHECK aborts before GoogleTest can print its trace, so the seed is told here.
std::uint64_t running_seed = 0;
void tell_seed(int) {
  std::fprintf(stderr, "aborted in seed %llu\n", static_cast<unsigned long long>(running_seed));
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

// What the random walk has met: a walk that never evicts or deduplicates would prove nothing.
struct Coverage {
  std::int64_t hits = 0;
  std::int64_t dropped = 0;
  std::int64_t deduplicated = 0;
  std::int64_t preempted = 0;
  std::int64_t refused = 0;
};

class Walk final {
 public:
  Walk(std::uint64_t seed, Coverage& coverage)
      : random_(seed),
        coverage_(coverage),
        config_{.page_tokens = kPageTokens[seed / kPoolSizes.size() % kPageTokens.size()],
                .resident_slots = kPoolSizes[seed % kPoolSizes.size()],
                .prefix_caching = below(8) == 0 ? kv::PrefixCaching::kOff : kv::PrefixCaching::kOn},
        controller_(config_),
        model_(config_) {
    for (int root = 0; root < kRoots; ++root) {
      roots_.push_back(kv::root_key({std::to_string(root), "model", "f32"}));
    }
  }

  void run() {
    for (int operation = 0; operation < kOperations; ++operation) {
      const std::string what = step();
      const std::optional<std::string> violation = controller_.check_invariants();
      ASSERT_FALSE(violation.has_value()) << *violation << " after " << operation << ": " << what;
      ASSERT_FALSE(wrong_.has_value()) << *wrong_ << " in " << operation << ": " << what;
      const std::optional<std::string> wrong = model_.compare(controller_);
      ASSERT_FALSE(wrong.has_value()) << *wrong << " after " << operation << ": " << what;
    }
    const kv::KvStats stats = controller_.stats();
    coverage_.hits += stats.hit_tokens;
    coverage_.dropped += stats.dropped_blocks;
    coverage_.deduplicated += stats.deduplicated_blocks;
  }

 private:
  int below(int bound) { return static_cast<int>(random_() % static_cast<std::uint64_t>(bound)); }

  // Pages of few kinds, so that prompts share prefixes whatever the page size; some odd tokens.
  base::TokenId next_token(std::int64_t position) {
    if (position % config_.page_tokens == 0) kind_ = below(3) == 0 ? 1 : 0;
    if (below(40) == 0) return 2;
    return kind_;
  }

  Tokens tokens(std::int64_t position, std::int64_t count) {
    Tokens made;
    for (std::int64_t i = 0; i < count; ++i) made.push_back(next_token(position + i));
    return made;
  }

  Tokens prompt() { return tokens(0, below(6 * config_.page_tokens) + 1); }

  std::optional<Sequence> any_sequence() {
    const std::vector<Sequence> ids = model_.sequences();
    if (ids.empty()) return std::nullopt;
    return ids[static_cast<std::size_t>(below(static_cast<int>(ids.size())))];
  }

  void expect(bool condition, const char* what) {
    if (!condition && !wrong_) wrong_ = what;
  }
  void keep(std::optional<std::string> wrong) {
    if (wrong && !wrong_) wrong_ = std::move(wrong);
  }

  std::string step() {
    switch (below(10)) {
      case 0:
        return look_up();
      case 1:
        return release();
      case 2:
        controller_.apply({.id = base::TransferId(below(100)),
                           .status = below(2) == 0 ? absl::OkStatus() : absl::AbortedError("x")});
        model_.stray();
        return "stray completion";
      case 3:
      case 4:
      case 5:
        return write();
      default:
        return plan();
    }
  }

  kv::PrefixMatch checked_match(int root, const Tokens& tokens, std::vector<Slot>& slots) {
    kv::PrefixMatch match = controller_.match(roots_[static_cast<std::size_t>(root)], tokens);
    slots = model_.match(root, tokens);
    expect(match.blocks.size() == slots.size(), "match is not the longest published prefix");
    expect(match.tokens == static_cast<std::int64_t>(slots.size()) * config_.page_tokens,
           "match counts other tokens than its pages");
    return match;
  }

  std::string look_up() {
    std::vector<Slot> slots;
    checked_match(below(kRoots), prompt(), slots);
    return "match";
  }

  std::string release() {
    const auto sequence = any_sequence();
    if (!sequence) return "nothing";
    keep(model_.released(*sequence, controller_.release(base::SequenceId(*sequence))));
    expect(!controller_.has(base::SequenceId(*sequence)), "a released sequence is still known");
    return "release";
  }

  std::string write() {
    const auto sequence = any_sequence();
    if (!sequence) return "nothing";
    const std::int64_t room = model_.room(*sequence);
    const std::int64_t count = below(3) == 0 ? room : below(static_cast<int>(room) + 1);
    const Tokens made = tokens(model_.written(*sequence), count);
    keep(model_.wrote(*sequence, made, controller_.written(base::SequenceId(*sequence), made)));
    return "written";
  }

  std::string plan() {
    kv::PlanBuilder builder = controller_.plan();
    ModelPlan wanted;
    std::set<Sequence> touched;
    const int calls = 1 + below(6);
    for (int call = 0; call < calls; ++call) {
      switch (below(6)) {
        case 0:
          plan_release(builder, wanted, touched);
          break;
        case 1:
        case 2:
          plan_extend(builder, wanted, touched);
          break;
        default:
          plan_admit(builder, wanted, touched);
      }
      expect(builder.available_pages() == model_.available(wanted),
             "available_pages() is not what the model counts");
    }
    const kv::KvPlan plan = std::move(builder).finish();
    if (below(5) == 0) return "dropped plan";
    keep(model_.committed(wanted, controller_.commit(plan)));
    coverage_.preempted += static_cast<std::int64_t>(wanted.releases.size());
    return "commit";
  }

  void plan_release(kv::PlanBuilder& builder, ModelPlan& wanted, std::set<Sequence>& touched) {
    const auto sequence = any_sequence();
    if (!sequence || !touched.insert(*sequence).second) return;
    builder.release(base::SequenceId(*sequence));
    wanted.releases.push_back(*sequence);
  }

  void plan_extend(kv::PlanBuilder& builder, ModelPlan& wanted, std::set<Sequence>& touched) {
    std::optional<Sequence> sequence = any_sequence();
    if (!wanted.admissions.empty() && below(3) == 0) sequence = wanted.admissions[0].sequence;
    if (!sequence) return;
    const auto released = std::ranges::find(wanted.releases, *sequence);
    if (released != wanted.releases.end()) return;
    touched.insert(*sequence);
    const base::SequenceId id(*sequence);
    const std::int64_t total = below(9 * config_.page_tokens);
    const std::int64_t missing =
        std::max<std::int64_t>(model_.pages_for(total) - model_.pages_held(*sequence, wanted), 0);
    expect(builder.pages_missing(id, total) == missing, "pages_missing() is wrong");
    const bool fits = missing <= model_.available(wanted);
    expect(builder.extend(id, total) == fits, "extend() answered other than the model");
    if (fits && missing > 0) wanted.growth_of(*sequence) += missing;
    if (!fits) ++coverage_.refused;
  }

  // A new sequence, or one that this very plan has preempted and starts again.
  void plan_admit(kv::PlanBuilder& builder, ModelPlan& wanted, std::set<Sequence>& touched) {
    Sequence sequence = next_sequence_++;
    if (!wanted.releases.empty() && below(4) == 0 && wanted.admissions.empty()) {
      sequence = wanted.releases[0];
    }
    const int root = below(kRoots);
    const Tokens asked = prompt();
    ModelPlan with = wanted;
    with.admissions.push_back({.sequence = sequence,
                               .root = root,
                               .matched = {},
                               .prompt_tokens = static_cast<std::int64_t>(asked.size())});
    std::vector<Slot>& matched = with.admissions.back().matched;
    const kv::PrefixMatch match = checked_match(root, asked, matched);
    const std::int64_t chunk = below(static_cast<int>(asked.size()) + config_.page_tokens);
    const std::int64_t total = match.tokens + chunk;
    const base::SequenceId id(sequence);
    expect(builder.pages_missing(id, total) == model_.pages_for(total),
           "pages_missing() of an unknown sequence is not all of them");

    const std::int64_t missing =
        model_.pages_for(total) - static_cast<std::int64_t>(matched.size());
    const bool fits = missing <= model_.available(with);
    const bool admitted = builder.admit(id, roots_[static_cast<std::size_t>(root)], match, total);
    expect(admitted == fits, "admit() answered other than the model");
    if (!fits) {
      ++coverage_.refused;
      return;
    }
    wanted = std::move(with);
    if (missing > 0) wanted.growth_of(sequence) += missing;
    touched.insert(sequence);
  }

  std::mt19937_64 random_;
  Coverage& coverage_;
  kv::ControllerConfig config_;
  kv::LifecycleController controller_;
  LifecycleModel model_;
  std::vector<kv::BlockKey> roots_;
  Sequence next_sequence_ = 0;
  base::TokenId kind_ = 0;
  std::optional<std::string> wrong_;
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
  std::printf("hits %lld tokens, dropped %lld, deduplicated %lld, preempted %lld, refused %lld\n",
              static_cast<long long>(coverage.hits), static_cast<long long>(coverage.dropped),
              static_cast<long long>(coverage.deduplicated),
              static_cast<long long>(coverage.preempted), static_cast<long long>(coverage.refused));
  if (replayed) return;
  EXPECT_GT(coverage.hits, 0);
  EXPECT_GT(coverage.dropped, 0);
  EXPECT_GT(coverage.deduplicated, 0);
  EXPECT_GT(coverage.preempted, 0);
  EXPECT_GT(coverage.refused, 0);
}

}  // namespace
}  // namespace hisparse::tests
