#include "tests/recall/recall_engine.h"

#include <chrono>
#include <cstdio>
#include <iostream>
#include <utility>

#include "base/check.h"

namespace hisparse::test {
namespace {

template <typename T>
T value_or_die(absl::StatusOr<T> result) {
  if (!result.ok()) std::cerr << result.status() << std::endl;
  HS_CHECK(result.ok());
  return std::move(*result);
}

std::string name_of_rung(std::size_t rung) {
  if (rung == kRungs) return "absent";
  if (rung == kRungs - 1) return "no decoy";
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", kDecoyCosines[rung]);
  return text;
}

}  // namespace

std::int64_t recall_page_bytes(const RecallShape& shape, std::int32_t page_tokens) {
  constexpr std::int64_t kPlanes = 2;  // keys and values
  return kPlanes * kRecallLayers * shape.kv_heads * kRecallHeadDim * page_tokens *
         base::block_shape(base::DType::kBF16).bytes;
}

config::EngineSettings recall_settings(const RecallShape& shape, const RecallLayout& layout) {
  constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
  const std::int64_t page_bytes = recall_page_bytes(shape, layout.page_tokens);
  config::EngineSettings settings;
  settings.max_model_len = layout.tokens + layout.page_tokens;
  settings.max_num_seqs = layout.together;
  settings.block_size = layout.page_tokens;
  settings.kv_cache_memory_bytes = layout.resident * page_bytes;
  if (layout.host + layout.disk == 0) return settings;
  settings.kv_tiering = config::KvTiering::kHybrid;
  // Half a page more, since it is given in GiB.
  settings.swap_space = layout.host == 0 ? 0.0
                                         : (static_cast<double>(layout.host) + 0.5) *
                                               static_cast<double>(page_bytes) / kGibibyte;
  if (layout.disk == 0) return settings;
  settings.kv_disk_path = layout.disk_folder;
  settings.kv_disk_space = transfer::DiskPool::file_bytes(
      static_cast<std::int32_t>(layout.disk),
      {.layers = kRecallLayers, .layer_bytes = page_bytes / kRecallLayers});
  return settings;
}

RecallEngine::RecallEngine(const std::string& folder, config::EngineSettings settings,
                           engine::KvSource* source) {
  settings.model = folder;
  settings.dtype = config::DTypeChoice::kF32;
  settings.kv_cache_dtype = config::DTypeChoice::kBF16;
  engine::LaunchOptions options;
  options.settings = settings;
  options.max_live_requests = 2 * settings.max_num_seqs;
  options.device.fresh = device::FreshMemory::kNaN;
  options.kv_source = source;
  options.freed_pages = engine::FreedPages::kPoison;
  options.token_bytes = [](base::TokenId token) { return std::to_string(token); };
  const auto checkpoint = value_or_die(format::Checkpoint::open(folder));
  launched_ = value_or_die(engine::launch(
      *checkpoint, value_or_die(engine::plan_launch(*checkpoint, options)), options));
}

engine::RequestHandle RecallEngine::submit(const RecallContext& context, const Needle& needle) {
  engine::Request request;
  request.prompt.reserve(context.tokens.size() + 1);
  request.prompt = context.tokens;
  request.prompt.push_back(needle.query);
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = 1;
  request.sampling.ignore_eos = true;
  return value_or_die(launched_.engine->submit(std::move(request), nullptr));
}

base::TokenId RecallEngine::wait(const engine::RequestHandle& handle, RecallAnswers& answers) {
  constexpr auto kPatience = std::chrono::hours(1);
  std::string text;
  for (;;) {
    const std::optional<engine::OutputChunk> chunk = handle.output().wait_take(kPatience);
    HS_CHECK(chunk.has_value());
    text += chunk->text;
    if (!chunk->finish) continue;
    if (!chunk->finish->status.ok()) std::cerr << chunk->finish->status << std::endl;
    HS_CHECK(chunk->finish->reason == engine::FinishReason::kLength);
    if (!answers.tokens.empty()) answers.cached_tokens += chunk->usage.cached_tokens;
    return std::stoi(text);
  }
}

RecallAnswers RecallEngine::ask(const RecallContext& context) {
  RecallAnswers answers;
  answers.tokens.push_back(wait(submit(context, context.needles.front()), answers));
  // Enough in the queue that the next step is full as soon as this one ends.
  const auto live = static_cast<std::size_t>(2 * launched_.plan.worker.max_sequences);
  std::vector<engine::RequestHandle> handles;
  for (std::size_t next = 1; answers.tokens.size() < context.needles.size();) {
    while (next < context.needles.size() && next - answers.tokens.size() < live) {
      handles.push_back(submit(context, context.needles[next++]));
    }
    const std::size_t oldest = answers.tokens.size() - 1;
    answers.tokens.push_back(wait(handles[oldest], answers));
    handles[oldest] = {};
  }
  return answers;
}

void RecallScore::add(const RecallContext& context, const RecallAnswers& answers) {
  HS_CHECK(answers.tokens.size() == context.needles.size());
  for (std::size_t i = 0; i < context.needles.size(); ++i) {
    const Needle& needle = context.needles[i];
    RungScore& rung = rungs[static_cast<std::size_t>(needle.rung)];
    ++rung.asked;
    const bool right = answers.tokens[i] == needle.answer;
    if (right) ++rung.right;
    if (!right && answers.tokens[i] == RecallVocabulary::none()) ++rung.none;
  }
}

std::string RecallScore::find_shortfall() const {
  constexpr std::int32_t kPercent = 98;
  for (std::size_t rung = 0; rung < rungs.size(); ++rung) {
    const std::int32_t needed =
        rung == 0 ? (rungs[rung].asked * kPercent + 99) / 100 : rungs[rung].asked;
    if (rungs[rung].right >= needed) continue;
    return "rung " + name_of_rung(rung) + ": " + std::to_string(rungs[rung].right) + " of " +
           std::to_string(rungs[rung].asked) + " are right, " + std::to_string(needed) + " must be";
  }
  return "";
}

std::string RecallScore::table() const {
  std::string text = "decoy at | needles | right | answered NONE\n";
  for (std::size_t rung = 0; rung < rungs.size(); ++rung) {
    text += name_of_rung(rung) + " | " + std::to_string(rungs[rung].asked) + " | " +
            std::to_string(rungs[rung].right) + " | " + std::to_string(rungs[rung].none) + "\n";
  }
  return text;
}

}  // namespace hisparse::test
