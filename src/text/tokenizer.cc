#include "text/tokenizer.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "text/bpe_merger.h"
#include "text/gguf_vocabulary.h"
#include "text/pretokenizer.h"
#include "text/special_tokens.h"
#include "text/utf8.h"

namespace hisparse::text {
namespace {

absl::Status check_spans(std::string_view text, std::span<const UserSpan> spans) {
  std::size_t end = 0;
  for (const UserSpan& span : spans) {
    if (span.begin < end || span.end < span.begin || span.end > text.size()) {
      return absl::InvalidArgumentError("user spans must be sorted, disjoint and inside the text");
    }
    end = span.end;
  }
  return absl::OkStatus();
}

class ByteLevelBpeTokenizer final : public Tokenizer {
 public:
  explicit ByteLevelBpeTokenizer(GgufVocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
    for (const VocabularyToken& token : vocabulary_.tokens) {
      longest_token_ = std::max({longest_token_, token.bytes.size(), token.text.size()});
    }
  }

  absl::StatusOr<std::vector<base::TokenId>> encode(
      std::string_view text, std::span<const UserSpan> user_spans) const override {
    if (!is_valid_utf8(text)) return absl::InvalidArgumentError("text to encode is not UTF-8");
    if (text.size() > BpeMerger::kMaxPieceBytes) {
      return absl::InvalidArgumentError("text to encode is longer than " +
                                        std::to_string(BpeMerger::kMaxPieceBytes) + " bytes");
    }
    HS_RETURN_IF_ERROR(check_spans(text, user_spans));
    std::vector<base::TokenId> tokens;
    BpeScratch scratch;
    std::size_t position = 0;
    while (const auto match = vocabulary_.specials.find(text, position, user_spans)) {
      encode_plain(text.substr(position, match->begin - position), scratch, tokens);
      tokens.push_back(match->token);
      position = match->end;
    }
    encode_plain(text.substr(position), scratch, tokens);
    return tokens;
  }

  std::string_view token_bytes(base::TokenId token) const override { return entry(token).bytes; }
  std::string_view token_text(base::TokenId token) const override { return entry(token).text; }

  int vocabulary_size() const override { return static_cast<int>(vocabulary_.tokens.size()); }
  std::size_t longest_token() const override { return longest_token_; }
  std::optional<base::TokenId> bos() const override { return vocabulary_.bos; }
  std::optional<base::TokenId> eos() const override { return vocabulary_.eos; }
  bool adds_bos() const override { return vocabulary_.adds_bos; }
  const std::vector<base::TokenId>& end_tokens() const override { return vocabulary_.end_tokens; }

 private:
  const VocabularyToken& entry(base::TokenId token) const {
    HS_CHECK(token >= 0 && token < vocabulary_size());
    return vocabulary_.tokens[static_cast<std::size_t>(token)];
  }

  void encode_plain(std::string_view text, BpeScratch& scratch,
                    std::vector<base::TokenId>& tokens) const {
    std::size_t position = 0;
    while (position < text.size()) {
      const std::string_view piece = next_piece(vocabulary_.pretokenizer, text, position);
      vocabulary_.merger.encode(piece, scratch, tokens);
      position += piece.size();
    }
  }

  const GgufVocabulary vocabulary_;
  std::size_t longest_token_ = 1;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::from_gguf(
    const format::Metadata& metadata) {
  HS_ASSIGN_OR_RETURN(GgufVocabulary vocabulary, load_gguf_vocabulary(metadata));
  return std::make_unique<const ByteLevelBpeTokenizer>(std::move(vocabulary));
}

}  // namespace hisparse::text
