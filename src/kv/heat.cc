#include "kv/heat.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace hisparse::kv {
namespace {

// 2^-20 of one query's attention is cold.
constexpr int kColdExponent = -20;
// 2^(-i / kHalfLife).
constexpr float kLeft[Heat::kHalfLife] = {1.0f,        0.917004043f, 0.840896415f, 0.771105413f,
                                          0.70710678f, 0.648419777f, 0.594603558f, 0.545253866f};
constexpr std::int64_t kForgotten = 64 * Heat::kHalfLife;

// What a mass counts after so many further re-plans.
float left_after(std::int64_t replans) {
  if (replans >= kForgotten) return 0.0f;
  return std::ldexp(kLeft[replans % Heat::kHalfLife],
                    static_cast<int>(-(replans / Heat::kHalfLife)));
}

}  // namespace

Heat::Heat(const Options& options) : replan_tokens_(options.replan_tokens) {
  HS_CHECK(options.window >= 0 && options.blocks >= 0);
  if (options.window == 0) return;
  HS_CHECK(options.replan_tokens > 0);
  records_.resize(static_cast<std::size_t>(options.blocks));
  ring_.resize(static_cast<std::size_t>(options.window));
}

std::int64_t Heat::bytes(const Options& options) {
  if (options.window == 0) return 0;
  return options.blocks * static_cast<std::int64_t>(sizeof(Record)) +
         options.window * static_cast<std::int64_t>(sizeof(Observation));
}

std::int64_t Heat::bytes() const {
  return static_cast<std::int64_t>(records_.capacity() * sizeof(Record) +
                                   ring_.capacity() * sizeof(Observation));
}

void Heat::begin(base::BlockId block) {
  if (!on()) return;
  record(block) = {.sum = 0.0f,
                   .known = false,
                   .replan = replans_,
                   .begun = replans_,
                   .touched = tokens_,
                   .observed = observed_};
}

void Heat::observe(base::BlockId block, float mass) {
  if (!on()) return;
  if (waiting() == window()) {
    ++taken_;
    ++lost_;
  }
  ring_[static_cast<std::size_t>(observed_++ % window())] = {.block = block, .mass = mass};
}

std::optional<Replan> Heat::computed(std::int64_t tokens) {
  tokens_ += tokens;
  if (!on() || tokens_ - planned_at_ < replan_tokens_) return std::nullopt;
  planned_at_ = tokens_;
  ++replans_;
  return take_ring();
}

Replan Heat::take_ring() {
  const Replan replan = {.number = replans_,
                         .observations = waiting(),
                         .lost = lost_ - std::exchange(lost_before_, lost_)};
  for (; taken_ < observed_; ++taken_) {
    const Observation& seen = ring_[static_cast<std::size_t>(taken_ % window())];
    Record& kept = record(seen.block);
    const bool a_share = seen.mass >= 0.0f && seen.mass <= 1.0f;
    if (taken_ < kept.observed || !a_share) continue;
    kept.sum = decayed(kept) + seen.mass;
    kept.known = true;
    kept.replan = replans_;
    kept.touched = planned_at_;
  }
  return replan;
}

float Heat::decayed(const Record& record) const {
  return record.sum == 0.0f ? 0.0f : record.sum * left_after(replans_ - record.replan);
}

float Heat::heat(base::BlockId block) const {
  if (!on()) return 0.0f;
  const Record& kept = record(block);
  const float sum = decayed(kept);
  if (sum == 0.0f) return 0.0f;
  // Divided by the weights of all re-plans since it began: a geometric series.
  return sum * (1.0f - kLeft[1]) /
         (1.0f - left_after(std::max<std::int64_t>(1, replans_ - kept.begun)));
}

int Heat::level(base::BlockId block) const {
  const float value = heat(block);
  if (value <= 0.0f) return 0;
  return std::max(0, std::ilogb(value) - kColdExponent + 1);
}

std::int64_t Heat::touched(base::BlockId block) const { return on() ? record(block).touched : 0; }

}  // namespace hisparse::kv
