// The production engine loop under a virtual clock, a model of the device and random clients:
// submit, cancel, stop strings, slow and failing steps. Each seed is a configuration and a thousand
// operations; HISPARSE_SEED replays one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine_core.h"
#include "tests/sim/paged_oracle.h"
#include "tests/sim/sim_mover.h"

namespace hisparse::test {
namespace {

constexpr int kSeeds = 1000;
constexpr int kOperations = 1000;
constexpr std::size_t kMaxLive = 24;
constexpr std::int64_t kMaxModelLen = 96;
constexpr base::TokenId kEndToken = 3;

// What the simulator knows of a request from outside.
struct Client {
  engine::Request request;
  std::vector<base::TokenId> tokens;  // prompt and the output so far
  bool told_to_end = false;           // cancelled or stopped: no further token may come
  bool finished = false;
};

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed)
      : random_(seed),
        config_(make_config()),
        device_(config_.kv, config_.scheduler.max_sequences,
                static_cast<std::int32_t>(kMaxModelLen)),
        mover_(device_, random_) {
    core_.emplace(config_, clock_, mover_);
    if (config_.kv.disk_slots > 0 && pick(0, 3) == 0) {
      device_.break_slot(
          base::SlotId(static_cast<std::int32_t>(pick(0, config_.kv.disk_slots - 1))));
    }
  }

  void run() {
    for (int i = 0; i < kOperations && !testing::Test::HasFatalFailure(); ++i) {
      operate();
      check();
    }
    drain();
  }

  std::int64_t preemptions() const { return preemptions_ + core_->stats().preemptions; }
  std::int64_t hit_tokens() const { return hits_ + core_->stats().cached_prompt_tokens; }
  std::int64_t deaths() const { return deaths_; }
  std::int64_t adopted() const { return adopted_; }
  std::int64_t cancelled_in_flight() const { return cancelled_in_flight_; }
  std::int64_t copies() const { return mover_.copies(); }
  std::int64_t failures() const { return mover_.failures(); }
  std::int64_t lost_pages() const { return core_->controller().stats().lost_pages; }
  std::int64_t replans() const { return core_->controller().stats().heat_replans; }
  std::int64_t observations() const { return core_->controller().stats().heat_observations; }
  std::int64_t exchanged() const { return core_->controller().stats().exchanged_pages; }
  std::int64_t restores() const {
    const kv::MoveCounts moved = core_->controller().stats().moved;
    return moved[1][0] + moved[2][0] + moved[2][1];
  }

 private:
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  engine::CoreConfig make_config() {
    engine::CoreConfig config;
    config.scheduler.max_sequences = static_cast<std::int32_t>(pick(1, 8));
    config.scheduler.max_batched_tokens = pick(config.scheduler.max_sequences, 40);
    config.scheduler.max_preemptions = static_cast<std::int32_t>(pick(0, 3));
    config.kv.page_tokens = static_cast<std::int32_t>(std::int64_t{1} << pick(0, 4));
    config.kv.resident_slots = static_cast<std::int32_t>(pick(0, 40));
    if (pick(0, 2) > 0) {
      config.kv.host_slots = static_cast<std::int32_t>(pick(0, 3) == 0 ? 0 : pick(0, 30));
      config.kv.disk_slots = static_cast<std::int32_t>(pick(0, 3) == 0 ? 0 : pick(0, 60));
      config.kv.max_transfers = static_cast<std::int32_t>(pick(1, 8));
      if (pick(0, 2) == 0) config.kv.mirroring = kv::Mirroring::kEager;
      if (pick(0, 1) == 0) config.kv.host_reads = kv::HostReads::kCopied;
      if (pick(0, 2) == 0) config.kv.persistence = kv::Persistence::kOn;
      if (pick(0, 3) != 0) config.kv.heat_window = std::int64_t{1} << pick(0, 8);
      config.kv.replan_tokens = pick(1, 60);
      config.kv.exchange_pages = pick(0, 6);
    }
    config.kv.prefix_caching = pick(0, 4) == 0 ? kv::PrefixCaching::kOff : kv::PrefixCaching::kOn;
    config.end_tokens = {kEndToken};
    config.max_model_len = kMaxModelLen;
    config.vocabulary = kSimVocabulary;
    return config;
  }

  // Prompts come from a few families, so that prefixes are shared, diverge, and are computed twice
  // at the same time.
  engine::Request random_request() {
    engine::Request request;
    const std::int64_t family = pick(0, 2);
    const std::int64_t length = pick(1, pick(0, 3) == 0 ? 70 : 20);
    for (std::int64_t i = 0; i < length; ++i) {
      request.prompt.push_back(static_cast<base::TokenId>((family * 7 + i) % kSimVocabulary));
    }
    if (pick(0, 1) == 0)
      request.prompt.back() = static_cast<base::TokenId>(pick(0, kSimVocabulary - 1));
    request.sampling.temperature = 0.0f;
    request.sampling.max_tokens = static_cast<std::int32_t>(pick(1, 30));
    request.sampling.ignore_eos = pick(0, 1) == 0;
    if (pick(0, 3) == 0) request.sampling.stop_token_ids = {5};
    if (pick(0, 3) == 0) request.cache_salt = "tenant";
    return request;
  }

  void operate() {
    switch (pick(0, 9)) {
      case 0:
      case 1:
        submit();
        break;
      case 2:
        end_somebody(&engine::EngineCore::cancel);
        break;
      case 3:
        if (pick(0, 3) == 0) end_somebody(&engine::EngineCore::stop);
        break;
      case 4:
        if (core_->step_in_flight() && pick(0, 60) == 0) fail_step();
        if (config_.kv.persistence == kv::Persistence::kOn && pick(0, 15) == 0) die();
        if (pick(0, 40) == 0) mover_.fail_disk(pick(0, 2) == 0);
        if (config_.kv.disk_slots > 0 && pick(0, 30) == 0) {
          device_.spoil(
              base::SlotId(static_cast<std::int32_t>(pick(0, config_.kv.disk_slots - 1))));
        }
        break;
      default:
        turn();
        break;
    }
    clock_.advance(pick(1, 1000));
    collect_events();
  }

  void submit() {
    if (live() >= kMaxLive) return;
    engine::Request request = random_request();
    const absl::Status valid = engine::validate(request, config_);
    if (!valid.ok()) {
      ASSERT_EQ(valid.code(), absl::StatusCode::kOutOfRange) << valid;
      return;
    }
    const base::SequenceId id(next_id_++);
    clients_[id] = {
        .request = request, .tokens = request.prompt, .told_to_end = false, .finished = false};
    core_->submit(id, std::move(request));
  }

  // Now and then somebody who is unknown or has finished: that must have no effect.
  void end_somebody(void (engine::EngineCore::*how)(base::SequenceId)) {
    if (next_id_ == 0) return;
    const base::SequenceId id(pick(std::max<std::int64_t>(0, next_id_ - 30), next_id_));
    if (core_->step_in_flight() && clients_.contains(id)) ++cancelled_in_flight_;
    ((*core_).*how)(id);
    if (clients_.contains(id)) clients_[id].told_to_end = true;
  }

  // One turn of the engine thread: plan a step, or take the result of the one in flight.
  void turn() {
    if (core_->step_in_flight()) {
      core_->complete(result_);
      return;
    }
    if (std::optional<sched::StepPlan> plan = core_->next_step()) {
      check_plan(*plan);
      result_ = device_.run(*plan);
      ASSERT_EQ(device_.contradiction(), std::nullopt);
    } else {
      collect_events();
      if (core_->controller().transfers_in_flight()) return;
      ASSERT_EQ(live(), 0u) << "requests wait, no step is planned and nothing moves";
    }
  }

  // The process dies at any moment. The next one knows what is on disk, and nobody's request.
  void die() {
    ++deaths_;
    preemptions_ += core_->stats().preemptions;
    hits_ += core_->stats().cached_prompt_tokens;
    clients_.clear();
    next_step_ = 0;
    recomputed_ = 0;
    a_tier_was_closed_ = false;
    const std::vector<kv::PersistedPage> pages = mover_.die();
    config_.kv.first_transfer += 1'000'000;
    core_.emplace(config_, clock_, mover_);
    core_->adopt(pages);
    adopted_ += core_->stats().kv.adopted_pages;
  }

  void fail_step() {
    engine::StepResult failed;
    failed.id = result_.id;
    failed.status = absl::InternalError("the device is gone");
    core_->complete(failed);
    for (auto& [id, client] : clients_) client.told_to_end = true;
  }

  void check_plan(const sched::StepPlan& plan) {
    ASSERT_EQ(plan.id.value(), next_step_++);
    ASSERT_LE(static_cast<std::int64_t>(plan.tokens.size()), config_.scheduler.max_batched_tokens);
    ASSERT_LE(static_cast<std::int32_t>(plan.rows.size()), config_.scheduler.max_sequences);
    ASSERT_FALSE(plan.rows.empty());
    ASSERT_LE(static_cast<std::int32_t>(plan.observations.size()), sched::kMaxObservations);
    ASSERT_TRUE(config_.kv.heat_window > 0 || plan.observations.empty());
  }

  void collect_events() {
    for (const kv::TierStats& tier : core_->stats().kv.tiers) {
      a_tier_was_closed_ = a_tier_was_closed_ || tier.closed;
    }
    for (const engine::TokenEvent& event : core_->take_events()) {
      ASSERT_TRUE(clients_.contains(event.sequence));
      Client& client = clients_[event.sequence];
      ASSERT_FALSE(client.finished) << "an event after the finish";
      if (event.token) take_token(client, event);
      if (event.finish) take_finish(client, event);
    }
    std::erase_if(clients_, [](const auto& entry) { return entry.second.finished; });
  }

  void take_token(Client& client, const engine::TokenEvent& event) {
    ASSERT_FALSE(client.told_to_end) << "a token after the end was asked for";
    ASSERT_EQ(*event.token, next_token(client.tokens))
        << "a token that an undisturbed run would not give";
    client.tokens.push_back(*event.token);
    ASSERT_EQ(event.usage.completion_tokens, output_tokens(client));
  }

  void take_finish(Client& client, const engine::TokenEvent& event) {
    client.finished = true;
    const engine::SamplingParams& sampling = client.request.sampling;
    ASSERT_EQ(event.usage.prompt_tokens, static_cast<std::int32_t>(client.request.prompt.size()));
    ASSERT_LE(event.usage.cached_tokens, event.usage.prompt_tokens);
    switch (event.finish->reason) {
      case engine::FinishReason::kLength:
        ASSERT_EQ(output_tokens(client), sampling.max_tokens);
        break;
      case engine::FinishReason::kStop:
        if (client.told_to_end) break;
        {
          const base::TokenId last = next_token(client.tokens);
          const bool stop_token =
              !sampling.stop_token_ids.empty() && last == sampling.stop_token_ids.front();
          ASSERT_TRUE(stop_token || (!sampling.ignore_eos && last == kEndToken));
          ASSERT_EQ(event.usage.completion_tokens, output_tokens(client) + 1);
        }
        break;
      case engine::FinishReason::kAbort:
        ASSERT_TRUE(client.told_to_end);
        break;
      // Only when the device failed, or when a tier that was counted on takes no more pages:
      // whoever passed validate() never lacks room otherwise.
      case engine::FinishReason::kError:
        ASSERT_TRUE(client.told_to_end || a_tier_was_closed_) << event.finish->status;
        break;
    }
  }

  static std::int32_t output_tokens(const Client& client) {
    return static_cast<std::int32_t>(client.tokens.size() - client.request.prompt.size());
  }

  std::size_t live() const { return clients_.size(); }

  void check() {
    const std::optional<std::string> violation = core_->controller().check_invariants();
    ASSERT_EQ(violation, std::nullopt);
    // Whoever was told to end has a finish at once, whatever is in flight.
    for (const auto& [id, client] : clients_)
      ASSERT_FALSE(client.told_to_end) << "lost: " << id.value();
    const engine::EngineStats stats = core_->stats();
    ASSERT_LE(stats.running, config_.scheduler.max_sequences);
    ASSERT_LE(stats.preemptions, config_.scheduler.max_preemptions * next_id_)
        << "the cap on preemptions";
    ASSERT_GE(stats.recomputed_tokens, recomputed_) << "a counter went back";
    recomputed_ = stats.recomputed_tokens;
    for (const kv::TierStats& tier : stats.kv.tiers) {
      ASSERT_EQ(tier.free + tier.filling + tier.ready + tier.draining, tier.capacity);
    }
  }

  // Without new requests everything ends in bounded time and nothing is left behind.
  void drain() {
    mover_.fail_disk(false);
    // With tiers a step may wait for copies, page by page.
    const std::int64_t waits = config_.kv.tiered() ? 20 : 1;
    const std::int64_t bound = static_cast<std::int64_t>(live()) * 2 * (kMaxModelLen + 1) *
                               (config_.scheduler.max_preemptions + 2) * waits;
    for (std::int64_t i = 0; i < bound && live() > 0; ++i) {
      turn();
      collect_events();
      check();
      if (testing::Test::HasFatalFailure()) return;
    }
    ASSERT_EQ(live(), 0u) << "not everything ended";
    // An idle engine may still have pages to copy to disk.
    for (int i = 0; i < kOperations; ++i) {
      turn();
      if (!core_->step_in_flight() && mover_.idle()) break;
    }
    turn();
    ASSERT_TRUE(core_->idle());
    const kv::KvStats stats = core_->controller().stats();
    ASSERT_EQ(stats.referenced, 0);
    ASSERT_EQ(stats.in_flight, 0);
    const kv::TierStats& disk = stats.tier(kv::Tier::kDisk);
    ASSERT_TRUE(stats.unpersisted == 0 || disk.free == 0 || disk.closed)
        << "an idle engine leaves pages unpersisted";
    std::int32_t ready = 0;
    for (const kv::TierStats& tier : stats.tiers) {
      ASSERT_EQ(tier.filling + tier.draining, 0);
      ready += tier.ready;
    }
    ASSERT_GE(ready, stats.cached);
  }

  std::mt19937_64 random_;
  engine::CoreConfig config_;
  base::VirtualClock clock_;
  PagedOracle device_;
  SimMover mover_;
  std::optional<engine::EngineCore> core_;
  engine::StepResult result_;
  std::map<base::SequenceId, Client> clients_;
  std::int64_t next_id_ = 0;
  std::int64_t next_step_ = 0;
  std::int64_t cancelled_in_flight_ = 0;
  std::int64_t recomputed_ = 0;
  bool a_tier_was_closed_ = false;
  std::int64_t preemptions_ = 0;  // of the processes that died
  std::int64_t hits_ = 0;
  std::int64_t deaths_ = 0;
  std::int64_t adopted_ = 0;
};

TEST(EngineSimulation, ServesEveryRequestAsIfAloneAndLeavesNothingBehind) {
  const char* replay = std::getenv("HISPARSE_SEED");
  const std::uint64_t first = replay == nullptr ? 1 : std::strtoull(replay, nullptr, 10);
  const std::uint64_t last = replay == nullptr ? kSeeds : first;
  std::int64_t preemptions = 0;
  std::int64_t hits = 0;
  std::int64_t cancelled_in_flight = 0;
  std::int64_t copies = 0;
  std::int64_t restores = 0;
  std::int64_t failures = 0;
  std::int64_t lost_pages = 0;
  std::int64_t deaths = 0;
  std::int64_t adopted = 0;
  std::int64_t replans = 0;
  std::int64_t observations = 0;
  std::int64_t exchanged = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("HISPARSE_SEED=" + std::to_string(seed));
    Simulation simulation(seed);
    simulation.run();
    if (HasFatalFailure()) return;
    preemptions += simulation.preemptions();
    hits += simulation.hit_tokens();
    cancelled_in_flight += simulation.cancelled_in_flight();
    copies += simulation.copies();
    restores += simulation.restores();
    failures += simulation.failures();
    lost_pages += simulation.lost_pages();
    deaths += simulation.deaths();
    adopted += simulation.adopted();
    replans += simulation.replans();
    observations += simulation.observations();
    exchanged += simulation.exchanged();
  }
  std::printf(
      "seeds %llu to %llu: %lld preemptions, %lld cached prompt tokens, %lld ends asked for in "
      "flight, %lld pages copied, %lld of them back, %lld failures, %lld pages lost, "
      "%lld pages observed, %lld re-plans, %lld exchanges, %lld deaths, %lld pages adopted\n",
      static_cast<unsigned long long>(first), static_cast<unsigned long long>(last),
      static_cast<long long>(preemptions), static_cast<long long>(hits),
      static_cast<long long>(cancelled_in_flight), static_cast<long long>(copies),
      static_cast<long long>(restores), static_cast<long long>(failures),
      static_cast<long long>(lost_pages), static_cast<long long>(observations),
      static_cast<long long>(replans), static_cast<long long>(exchanged),
      static_cast<long long>(deaths), static_cast<long long>(adopted));
  if (replay != nullptr) return;
  // The interesting paths were really taken.
  EXPECT_GT(preemptions, 1000);
  EXPECT_GT(hits, 1000);
  EXPECT_GT(cancelled_in_flight, 500);
  EXPECT_GT(copies, 1000);
  EXPECT_GT(restores, 100);
  EXPECT_GT(failures, 100);
  EXPECT_GT(lost_pages, 100);
  EXPECT_GT(observations, 1000);
  EXPECT_GT(replans, 1000);
  EXPECT_GT(exchanged, 100);
  EXPECT_GT(deaths, 100);
  EXPECT_GT(adopted, 1000);
}

}  // namespace
}  // namespace hisparse::test
