#include "app/generate_command.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "app/loaded_model.h"
#include "base/status.h"
#include "text/utf8.h"

namespace hisparse::app {
namespace {

absl::StatusOr<std::vector<base::TokenId>> encode_prompt(const LoadedModel& model,
                                                         const config::GenerateSettings& settings) {
  if (!text::is_valid_utf8(settings.prompt)) {
    return absl::InvalidArgumentError("--prompt is not valid UTF-8");
  }
  if (!settings.raw) {
    if (model.chat_template == nullptr) {
      return absl::FailedPreconditionError("the model has no chat template: use --raw");
    }
    HS_ASSIGN_OR_RETURN(const text::RenderedPrompt prompt,
                        model.chat_template->render({{"user", settings.prompt}},
                                                    text::render_options(*model.tokenizer)));
    return model.tokenizer->encode(prompt.text, prompt.user_spans);
  }
  HS_ASSIGN_OR_RETURN(std::vector<base::TokenId> tokens, model.tokenizer->encode(settings.prompt));
  if (model.tokenizer->adds_bos() && model.tokenizer->bos()) {
    tokens.insert(tokens.begin(), *model.tokenizer->bos());
  }
  return tokens;
}

absl::Status print_output(engine::RequestHandle& handle) {
  constexpr auto kPatience = std::chrono::seconds(1);
  for (;;) {
    std::optional<engine::OutputChunk> chunk = handle.output().wait_take(kPatience);
    if (!chunk) continue;
    std::fwrite(chunk->text.data(), 1, chunk->text.size(), stdout);
    std::fflush(stdout);
    if (!chunk->finish) continue;
    std::fputc('\n', stdout);
    spdlog::info("{} prompt tokens, {} generated, ended by {}", chunk->usage.prompt_tokens,
                 chunk->usage.completion_tokens, name_of(chunk->finish->reason));
    return chunk->finish->status;
  }
}

absl::Status generate(const config::GenerateSettings& settings) {
  HS_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, load_model(settings.engine, {}));
  engine::Request request;
  request.id = "generate";
  HS_ASSIGN_OR_RETURN(request.prompt, encode_prompt(*model, settings));
  request.sampling.temperature = settings.temperature;
  request.sampling.top_p = settings.top_p;
  request.sampling.top_k = settings.top_k;
  request.sampling.seed = settings.seed;
  request.sampling.max_tokens = settings.max_tokens;
  request.sampling.stop = settings.stop;
  HS_ASSIGN_OR_RETURN(engine::RequestHandle handle,
                      model->launched.engine->submit(std::move(request), nullptr));
  absl::Status status = print_output(handle);
  wait_until_kept(*model->launched.engine);
  return status;
}

}  // namespace

int run_generate(const config::GenerateSettings& settings) {
  const absl::Status status = generate(settings);
  if (status.ok()) return 0;
  spdlog::error("{}", std::string(status.message()));
  return 1;
}

}  // namespace hisparse::app
