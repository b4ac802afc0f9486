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

// Loading ends with Cancelled when `stop` (asked after each layer; may be empty) says so. Logs the
// plan, the byte ledger and the progress of loading. Errors say which part failed.
absl::StatusOr<std::unique_ptr<LoadedModel>> load_model(const config::EngineSettings& settings,
                                                        std::int32_t max_live_requests,
                                                        const std::function<bool()>& stop);

}  // namespace hisparse::app
