// A whole engine over a small model for tests: answers with the logits behind each token.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/launch.h"
#include "tests/support/model_rig.h"

namespace hisparse::test {

// What one request got: its tokens, and the logits behind each of them.
struct Answer {
  std::vector<base::TokenId> tokens;
  std::vector<Logits> logits;
  engine::Usage usage;
  engine::FinishReason reason = engine::FinishReason::kError;
  absl::Status status;
};

// Of the fixture, unless they name a model.
inline config::EngineSettings with_model(config::EngineSettings settings) {
  if (settings.model.empty()) {
    settings.model = test_data("golden/data/llama3_rope");
    settings.dtype = config::DTypeChoice::kF32;
  }
  settings.threads = 2;
  return settings;
}

// What an engine of these settings would be.
inline engine::LaunchPlan plan_of(const config::EngineSettings& settings) {
  engine::LaunchOptions options;
  options.settings = with_model(settings);
  auto checkpoint = format::Checkpoint::open(options.settings.model);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  auto plan = engine::plan_launch(**checkpoint, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

// An engine over a model that records every sampled row's logits by the request's seed.
// Temperature 1, so that the random streams are part of what must not change.
class TestEngine {
 public:
  // Staging for pages on disk is as small as can be, so that there are several windows.
  explicit TestEngine(config::EngineSettings settings, device::CpuDeviceOptions device = {},
                      engine::KvSource* source = nullptr) {
    options_.stream_half_bytes = 0;
    options_.settings = with_model(std::move(settings));
    options_.device = device;
    options_.kv_source = source;
    options_.freed_pages = engine::FreedPages::kPoison;
    options_.token_bytes = [](base::TokenId token) { return std::to_string(token) + ","; };
    options_.observe_logits = [this](const sched::StepPlan& plan, std::span<const float> logits) {
      std::lock_guard lock(mutex_);
      const std::size_t width = logits.size() / plan.samples.size();
      for (std::size_t i = 0; i < plan.samples.size(); ++i) {
        const auto row = logits.subspan(i * width, width);
        // Requests with the same prompt and seed (dropped midway, started again) repeat their bits.
        const auto [entry, fresh] = logits_[plan.samples[i].seed].try_emplace(
            plan.samples[i].counter, Logits(row.begin(), row.end()));
        EXPECT_TRUE(fresh || std::equal(row.begin(), row.end(), entry->second.begin()));
      }
    };
    auto checkpoint = format::Checkpoint::open(options_.settings.model);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    auto plan = engine::plan_launch(**checkpoint, options_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    auto launched = engine::launch(**checkpoint, *plan, options_);
    EXPECT_TRUE(launched.ok()) << launched.status();
    launched_ = std::move(*launched);
  }

  engine::Engine& engine() { return *launched_.engine; }
  const engine::LaunchPlan& plan() const { return launched_.plan; }

  engine::RequestHandle submit(std::uint64_t seed, std::vector<base::TokenId> prompt,
                               std::int32_t max_tokens) {
    engine::Request request;
    request.prompt = std::move(prompt);
    request.sampling.seed = seed;
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    auto handle = engine().submit(std::move(request), nullptr);
    EXPECT_TRUE(handle.ok()) << handle.status();
    return std::move(*handle);
  }

  Answer wait(std::uint64_t seed, engine::RequestHandle handle) {
    Answer answer;
    std::string text;
    for (;;) {
      std::optional<engine::OutputChunk> chunk =
          handle.output().wait_take(std::chrono::seconds(60));
      if (!chunk) {
        ADD_FAILURE() << "no output for a minute";
        return answer;
      }
      text += chunk->text;
      answer.usage = chunk->usage;
      if (!chunk->finish) continue;
      answer.reason = chunk->finish->reason;
      answer.status = chunk->finish->status;
      break;
    }
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find(',', begin);
      answer.tokens.push_back(std::stoi(text.substr(begin, end - begin)));
      begin = end + 1;
    }
    std::lock_guard lock(mutex_);
    for (auto& [counter, logits] : logits_[seed]) answer.logits.push_back(logits);
    logits_.erase(seed);
    return answer;
  }

  Answer run(std::uint64_t seed, std::vector<base::TokenId> prompt, std::int32_t max_tokens) {
    return wait(seed, submit(seed, std::move(prompt), max_tokens));
  }

 private:
  engine::LaunchOptions options_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::map<std::uint64_t, Logits>>
      logits_;  // by seed, by counter; guarded by mutex_
  engine::LaunchedEngine launched_;
};

inline std::vector<base::TokenId> prompt_of(std::int32_t length, std::int32_t step) {
  std::vector<base::TokenId> tokens;
  for (std::int32_t i = 0; i < length; ++i) tokens.push_back((17 + i * step) % 500);
  return tokens;
}

// Pages of 16 tokens, requests of 512, eight at a time.
inline config::EngineSettings settings() {
  config::EngineSettings settings;
  settings.max_model_len = 512;
  settings.max_num_seqs = 8;
  settings.max_num_batched_tokens = 48;
  settings.block_size = 16;
  return settings;
}

inline void expect_equal(const Answer& a, const Answer& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  ASSERT_EQ(a.logits.size(), b.logits.size());
  for (std::size_t i = 0; i < a.logits.size(); ++i)
    EXPECT_EQ(a.logits[i], b.logits[i]) << "token " << i;
}

}  // namespace hisparse::test
