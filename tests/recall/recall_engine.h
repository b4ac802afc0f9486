// An engine over a recall model, and the questions asked of it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "engine/launch.h"
#include "tests/recall/recall_context.h"
#include "tests/recall/recall_model.h"

namespace hisparse::test {

// What came of the questions about one context.
struct RecallAnswers {
  std::vector<base::TokenId> tokens;  // [needle]
  // Of the questions behind the first: prompt tokens that were found in the prefix cache.
  std::int64_t cached_tokens = 0;
};

// How much of a context is asked about at a time, and where its pages have room.
struct RecallLayout {
  std::int64_t tokens = 0;  // of a context
  std::int32_t page_tokens = 64;
  std::int32_t together = 1;  // questions that run at the same time; each takes a resident page
  std::int64_t resident = 0;  // pages
  std::int64_t host = 0;
  std::int64_t disk = 0;
  std::string disk_folder = {};
};
std::int64_t recall_page_bytes(const RecallShape& shape, std::int32_t page_tokens);
config::EngineSettings recall_settings(const RecallShape& shape, const RecallLayout& layout);

// Freed pages are poisoned and fresh memory is NaN. Greedy, f32 products. CHECK: what fails is the
// fixture's fault, or shown by the status in the log.
class RecallEngine final {
 public:
  // `settings` without model and dtypes. KV rows are bf16. With a source, contexts are not read:
  // their rows come from there.
  RecallEngine(const std::string& folder, config::EngineSettings settings,
               engine::KvSource* source = nullptr);

  // The first question alone, which reads the context; the others share its pages, as many at a
  // time as run together.
  RecallAnswers ask(const RecallContext& context);

  std::shared_ptr<const engine::EngineStats> stats() const { return launched_.engine->stats(); }
  const engine::LaunchPlan& plan() const { return launched_.plan; }

 private:
  engine::RequestHandle submit(const RecallContext& context, const Needle& needle);
  base::TokenId wait(const engine::RequestHandle& handle, RecallAnswers& answers);

  engine::LaunchedEngine launched_;
};

// Right answers by rung.
struct RungScore {
  std::int32_t asked = 0;
  std::int32_t right = 0;
  std::int32_t none = 0;  // of the others: answered NONE
};
struct RecallScore {
  std::array<RungScore, kRungs + 1> rungs;

  void add(const RecallContext& context, const RecallAnswers& answers);
  // What the fixture asks of exact bf16 rows: 98 % of the first rung and all of the others. The
  // first rung that has less, in words, or nothing.
  std::string find_shortfall() const;
  // A line for each rung.
  std::string table() const;
};

}  // namespace hisparse::test
