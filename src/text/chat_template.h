// A model's chat template: the subset of Jinja that is needed, interpreted with step and output
// limits.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "text/tokenizer.h"

namespace hisparse::text {

struct ChatMessage {
  std::string role;
  std::string content;
};

struct RenderOptions {
  bool add_generation_prompt = true;
  std::string bos_token;  // texts of the special tokens that templates name
  std::string eos_token;
};

// The options with the texts of this tokenizer's special tokens; empty where it has none.
RenderOptions render_options(const Tokenizer& tokenizer);

struct RenderedPrompt {
  std::string text;
  std::vector<UserSpan>
      user_spans;  // bytes that came from messages[].content or .role; sorted, disjoint
};

// Immutable after parsing; any thread may render. The environment is Hugging Face's: trim_blocks
// and lstrip_blocks on (reference/models.md section 4.4).
class ChatTemplate {
 public:
  // Errors name the line and the construct. What is not implemented is refused here, by name, not
  // at render time where it can be avoided.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> parse(std::string_view source);

  virtual ~ChatTemplate() = default;
  // InvalidArgument for raise_exception() and type errors; ResourceExhausted past the limits.
  virtual absl::StatusOr<RenderedPrompt> render(const std::vector<ChatMessage>& messages,
                                                const RenderOptions& options) const = 0;
};

}  // namespace hisparse::text
