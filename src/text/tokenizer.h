// Text <-> token ids for one model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "format/metadata.h"

namespace hisparse::text {

// A half-open byte range [begin, end) of a text that came from a user. Special tokens are never
// recognised in or across it: "<|im_end|>" typed by a user stays text.
struct UserSpan {
  std::size_t begin;
  std::size_t end;
};

// Immutable after creation; any thread may call any method.
class Tokenizer {
 public:
  // From GGUF metadata (tokenizer.ggml.*, reference/models.md section 4.2). Refuses by name what it
  // does not implement: a tokenizer.ggml.model other than "gpt2", an unknown tokenizer.ggml.pre.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> from_gguf(
      const format::Metadata& metadata);

  virtual ~Tokenizer() = default;

  // Encodes valid UTF-8 (InvalidArgument otherwise). Special tokens (control and user-defined) are
  // recognised outside `user_spans`, which are sorted and disjoint; the text between two special
  // tokens is split and merged as one piece whatever spans it holds. Adds no BOS or EOS.
  virtual absl::StatusOr<std::vector<base::TokenId>> encode(
      std::string_view text, std::span<const UserSpan> user_spans = {}) const = 0;

  // The bytes that a token stands for; empty for control tokens (type 3), which are not part of the
  // text. `token` must be in [0, vocabulary_size()).
  virtual std::string_view token_bytes(base::TokenId token) const = 0;
  // The token's text as written in a template, control tokens included ("<|im_end|>").
  virtual std::string_view token_text(base::TokenId token) const = 0;

  virtual int vocabulary_size() const = 0;
  // Bytes of text that the longest token covers: a text of n bytes has at least n / longest_token()
  // tokens.
  virtual std::size_t longest_token() const = 0;
  virtual std::optional<base::TokenId> bos() const = 0;
  virtual std::optional<base::TokenId> eos() const = 0;
  // tokenizer.ggml.add_bos_token: a raw completion prompt starts with bos().
  virtual bool adds_bos() const = 0;
  // Ids that end a generation: eos, and eot where the vocabulary names one.
  virtual const std::vector<base::TokenId>& end_tokens() const = 0;
};

}  // namespace hisparse::text
