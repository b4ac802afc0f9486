// Opens the model that the settings name: checkpoint, tokenizer, chat template, engine.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "config/server_config.h"
#include "engine/launch.h"
#include "format/checkpoint.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hisparse::app {

// Destroyed in reverse order: the engine goes first.
struct LoadedModel {
  std::unique_ptr<format::Checkpoint> checkpoint;
  std::unique_ptr<const text::Tokenizer> tokenizer;
  std::unique_ptr<const text::ChatTemplate> chat_template;  // null: the model has none
  engine::LaunchedEngine launched;
};

struct LoadOptions {
  std::int32_t max_live_requests = 1;
  // Asked after each layer; loading ends with Cancelled when it says so. May be empty.
  std::function<bool()> stop = {};
  // Sees the plan before any weight is read; its error ends the start. May be empty.
  std::function<absl::Status(const engine::LaunchPlan&)> check = {};
  // What the output shows of a token; empty: its bytes.
  engine::TokenBytes token_bytes = {};
  // Not null: prompts are not read (engine/kv_source.h). Outlives the engine.
  engine::KvSource* kv_source = nullptr;
};

// Logs the plan, the byte ledger and the progress of loading. Errors say which part failed.
absl::StatusOr<std::unique_ptr<LoadedModel>> load_model(const config::EngineSettings& settings,
                                                        const LoadOptions& load);

// At the end of a command: full pages may still be on their way to disk for the next start. Waits
// while there are fewer and fewer of them (a full disk takes no more), and warns of those that are
// left.
void wait_until_kept(const engine::Engine& engine);

}  // namespace hisparse::app
