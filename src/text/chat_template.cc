#include "text/chat_template.h"

#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "text/template_interpreter.h"
#include "text/template_parser.h"
#include "text/utf8.h"

namespace hisparse::text {
namespace {

using jinja::Dict;
using jinja::Interpreter;
using jinja::List;
using jinja::MarkedString;
using jinja::Value;

constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;

absl::StatusOr<Value> message_value(const ChatMessage& message) {
  if (!is_valid_utf8(message.role) || !is_valid_utf8(message.content)) {
    return absl::InvalidArgumentError("a message is not UTF-8");
  }
  Dict dict;
  dict.emplace_back(MarkedString::from_template("role"),
                    Value(MarkedString::from_user(message.role)));
  dict.emplace_back(MarkedString::from_template("content"),
                    Value(MarkedString::from_user(message.content)));
  return Value::make_dict(std::move(dict));
}

absl::StatusOr<Interpreter::Scope> make_globals(const std::vector<ChatMessage>& messages,
                                                const RenderOptions& options) {
  if (!is_valid_utf8(options.bos_token) || !is_valid_utf8(options.eos_token)) {
    return absl::InvalidArgumentError("bos_token or eos_token is not UTF-8");
  }
  List list;
  list.reserve(messages.size());
  for (const ChatMessage& message : messages) {
    HS_ASSIGN_OR_RETURN(Value value, message_value(message));
    list.push_back(std::move(value));
  }
  Interpreter::Scope globals;
  HS_ASSIGN_OR_RETURN(globals["messages"], Value::make_list(std::move(list)));
  globals["add_generation_prompt"] = Value(options.add_generation_prompt);
  globals["bos_token"] = jinja::make_string(options.bos_token);
  globals["eos_token"] = jinja::make_string(options.eos_token);
  // Hugging Face passes these two always; without tools and documents they are none, not undefined.
  globals["tools"] = Value(jinja::None{});
  globals["documents"] = Value(jinja::None{});
  return globals;
}

class ParsedChatTemplate final : public ChatTemplate {
 public:
  explicit ParsedChatTemplate(jinja::Body body) : body_(std::move(body)) {}

  absl::StatusOr<RenderedPrompt> render(const std::vector<ChatMessage>& messages,
                                        const RenderOptions& options) const override {
    HS_ASSIGN_OR_RETURN(Interpreter::Scope globals, make_globals(messages, options));
    Interpreter interpreter(std::move(globals));
    HS_RETURN_IF_ERROR(interpreter.run(body_));
    const MarkedString output = interpreter.take_output();
    return RenderedPrompt{output.text(), output.spans()};
  }

 private:
  const jinja::Body body_;
};

}  // namespace

RenderOptions render_options(const Tokenizer& tokenizer) {
  const auto text_of = [&tokenizer](std::optional<base::TokenId> token) {
    return token ? std::string(tokenizer.token_text(*token)) : std::string();
  };
  RenderOptions options;
  options.bos_token = text_of(tokenizer.bos());
  options.eos_token = text_of(tokenizer.eos());
  return options;
}

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return absl::InvalidArgumentError("chat template of more than " +
                                      std::to_string(kMaxSourceBytes) + " bytes");
  }
  if (!is_valid_utf8(source)) return absl::InvalidArgumentError("chat template is not UTF-8");
  HS_ASSIGN_OR_RETURN(jinja::Body body, jinja::parse_template(source));
  return std::make_unique<const ParsedChatTemplate>(std::move(body));
}

}  // namespace hisparse::text
