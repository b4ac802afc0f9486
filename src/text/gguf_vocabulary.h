// Reads and checks the tokenizer.ggml.* keys of a byte-level BPE vocabulary (reference/models.md
// section 4.2).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "format/metadata.h"
#include "text/bpe_merger.h"
#include "text/pretokenizer.h"
#include "text/special_tokens.h"

namespace hisparse::text {

struct VocabularyToken {
  std::string text;   // as the file spells it
  std::string bytes;  // what it stands for in a text; empty for control, unknown and unused tokens
};

struct GgufVocabulary {
  std::vector<VocabularyToken> tokens;
  PretokenizerKind pretokenizer = PretokenizerKind::kGpt2;
  BpeMerger merger;
  SpecialTokens specials;
  std::optional<base::TokenId> bos;
  std::optional<base::TokenId> eos;
  bool adds_bos = false;
  std::vector<base::TokenId> end_tokens;
};

// The file is untrusted: InvalidArgument (or NotFound for an absent key) says which key and which
// entry. Unimplemented for a tokenizer kind, pattern or option that we do not have.
absl::StatusOr<GgufVocabulary> load_gguf_vocabulary(const format::Metadata& metadata);

}  // namespace hisparse::text
