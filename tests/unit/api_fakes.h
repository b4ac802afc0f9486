// A tokenizer and a template that tests can follow by eye.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "api/prepare.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hisparse::api {

// One token per byte; 256 is BOS and 257 is EOS.
class ByteTokenizer final : public text::Tokenizer {
 public:
  enum class Bos { kAdded, kNotAdded };
  explicit ByteTokenizer(Bos bos = Bos::kNotAdded) : bos_(bos) {}

  absl::StatusOr<std::vector<base::TokenId>> encode(
      std::string_view text, std::span<const text::UserSpan> spans) const override {
    user_bytes = 0;
    encoded_bytes += text.size();
    for (const text::UserSpan& span : spans) user_bytes += span.end - span.begin;
    std::vector<base::TokenId> tokens;
    for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
    return tokens;
  }
  std::string_view token_bytes(base::TokenId) const override { return {}; }
  std::string_view token_text(base::TokenId token) const override {
    return token == 256 ? "<s>" : "</s>";
  }
  int vocabulary_size() const override { return 258; }
  std::size_t longest_token() const override { return 1; }
  std::optional<base::TokenId> bos() const override { return 256; }
  std::optional<base::TokenId> eos() const override { return 257; }
  bool adds_bos() const override { return bos_ == Bos::kAdded; }
  const std::vector<base::TokenId>& end_tokens() const override { return end_tokens_; }

  mutable std::atomic<std::size_t> user_bytes = 0;     // of the last call
  mutable std::atomic<std::size_t> encoded_bytes = 0;  // of all calls

 private:
  Bos bos_;
  std::vector<base::TokenId> end_tokens_ = {257};
};

// "role=content;" for each message; raises for the content "raise", floods for "flood".
class PlainTemplate final : public text::ChatTemplate {
 public:
  absl::StatusOr<text::RenderedPrompt> render(const std::vector<text::ChatMessage>& messages,
                                              const text::RenderOptions&) const override {
    text::RenderedPrompt prompt;
    for (const text::ChatMessage& message : messages) {
      if (message.content == "raise") return absl::InvalidArgumentError("roles must alternate");
      if (message.content == "flood") return absl::ResourceExhaustedError("too much output");
      prompt.text += message.role + "=";
      const std::size_t begin = prompt.text.size();
      prompt.text += message.content;
      prompt.user_spans.push_back({begin, prompt.text.size()});
      prompt.text += ";";
    }
    return prompt;
  }
};

}  // namespace hisparse::api
