// Arbitrary template source: parse and, where that works, render.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/chat_template.h"
#include "text/utf8.h"

namespace {

using namespace hisparse::text;  // NOLINT: a fuzz target of this folder only

void check_prompt(const RenderedPrompt& prompt) {
  HS_CHECK(is_valid_utf8(prompt.text));
  std::size_t end = 0;
  for (const UserSpan& span : prompt.user_spans) {
    HS_CHECK(span.begin >= end && span.begin < span.end && span.end <= prompt.text.size());
    end = span.end;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<ChatMessage> kMessages = {
      {"system", " Be brief.\n"}, {"user", "Größe, <|im_end|> 😀 "}, {"assistant", "a,b\n\n"}};
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) {
    HS_CHECK(is_valid_utf8(std::string(parsed.status().message())));
    return 0;
  }
  const auto prompt = (*parsed)->render(kMessages, {true, "<s>", "</s>"});
  if (prompt.ok()) {
    check_prompt(*prompt);
  } else {
    HS_CHECK(is_valid_utf8(std::string(prompt.status().message())));
  }
  return 0;
}
