#include "text/gguf_vocabulary.h"

#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/status.h"
#include "text/byte_level.h"
#include "text/utf8.h"

namespace hisparse::text {
namespace {

constexpr std::string_view kModelKey = "tokenizer.ggml.model";
constexpr std::string_view kPreKey = "tokenizer.ggml.pre";
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";
constexpr std::string_view kSupportedModel = "gpt2";

constexpr std::size_t kMaxTokens = std::size_t{1} << 26;
// Bounds the work per byte when special tokens are searched.
constexpr std::size_t kMaxSpecialTokenBytes = 1024;

enum TokenType : std::int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
};

// Error texts travel to clients and logs, so bytes of the file are made valid UTF-8 and cut short.
std::string quoted(std::string_view text) {
  constexpr std::size_t kMaxQuotedBytes = 64;
  const bool cut = text.size() > kMaxQuotedBytes;
  return "\"" + to_valid_utf8(text.substr(0, kMaxQuotedBytes)) + (cut ? "...\"" : "\"");
}

absl::Status invalid(std::string_view key, std::size_t index, const std::string& what) {
  return absl::InvalidArgumentError(std::string(key) + "[" + std::to_string(index) + "]: " + what);
}

class Loader {
 public:
  explicit Loader(const format::Metadata& metadata) : metadata_(metadata) {}

  absl::StatusOr<GgufVocabulary> load() {
    HS_RETURN_IF_ERROR(check_kind());
    HS_RETURN_IF_ERROR(check_options());
    HS_RETURN_IF_ERROR(load_tokens());
    HS_RETURN_IF_ERROR(load_byte_tokens());
    HS_RETURN_IF_ERROR(load_merges());
    HS_RETURN_IF_ERROR(load_ids());
    return std::move(out_);
  }

 private:
  absl::Status check_kind() {
    HS_ASSIGN_OR_RETURN(const std::string model, metadata_.get_string(kModelKey));
    if (model != kSupportedModel) {
      return absl::UnimplementedError(std::string(kModelKey) + " " + quoted(model) +
                                      " is not supported; supported: gpt2");
    }
    HS_ASSIGN_OR_RETURN(const std::string pre, metadata_.get_string(kPreKey));
    const std::optional<PretokenizerKind> kind = pretokenizer_from_name(pre);
    if (!kind) {
      return absl::UnimplementedError(std::string(kPreKey) + " " + quoted(pre) +
                                      " is not supported; supported: " + supported_pretokenizers());
    }
    out_.pretokenizer = *kind;
    return absl::OkStatus();
  }

  absl::Status check_options() {
    for (const char* key : {"tokenizer.ggml.add_space_prefix", "tokenizer.ggml.add_eos_token"}) {
      HS_ASSIGN_OR_RETURN(const bool on, metadata_.bool_or(key, false));
      if (on) return absl::UnimplementedError(std::string(key) + " = true is not supported");
    }
    return absl::OkStatus();
  }

  absl::Status load_tokens() {
    HS_ASSIGN_OR_RETURN(tokens_, metadata_.get_strings(kTokensKey));
    HS_ASSIGN_OR_RETURN(types_, metadata_.get_ints(kTypesKey));
    if (tokens_->empty() || tokens_->size() > kMaxTokens) {
      return absl::InvalidArgumentError(std::string(kTokensKey) + " has " +
                                        std::to_string(tokens_->size()) + " entries");
    }
    if (types_->size() != tokens_->size()) {
      return absl::InvalidArgumentError(
          std::string(kTypesKey) + " has " + std::to_string(types_->size()) + " entries, " +
          std::string(kTokensKey) + " has " + std::to_string(tokens_->size()));
    }
    out_.tokens.reserve(tokens_->size());
    ids_.reserve(tokens_->size());
    std::vector<std::pair<std::string, base::TokenId>> specials;
    for (std::size_t i = 0; i < tokens_->size(); ++i) {
      HS_RETURN_IF_ERROR(load_token(i));
      if (is_special(i)) specials.emplace_back((*tokens_)[i], static_cast<base::TokenId>(i));
    }
    out_.specials = SpecialTokens(std::move(specials));
    return absl::OkStatus();
  }

  absl::Status load_token(std::size_t i) {
    const std::string& text = (*tokens_)[i];
    const std::int64_t type = (*types_)[i];
    if (!is_valid_utf8(text)) return invalid(kTokensKey, i, "not UTF-8: " + quoted(text));
    if (type < kNormal || type > kUnused) {
      return invalid(kTypesKey, i, "type " + std::to_string(type) + " does not belong here");
    }
    const auto [other, added] = ids_.emplace(text, static_cast<base::TokenId>(i));
    if (!added) {
      return invalid(kTokensKey, i,
                     quoted(text) + " is also token " + std::to_string(other->second));
    }
    if (is_special(i) && (text.empty() || text.size() > kMaxSpecialTokenBytes)) {
      return invalid(kTokensKey, i,
                     "special token of " + std::to_string(text.size()) + " bytes; 1 to " +
                         std::to_string(kMaxSpecialTokenBytes) + " are allowed");
    }
    VocabularyToken token{text, {}};
    if (type == kNormal) token.bytes = byte_level_decode(text);
    if (type == kUserDefined) token.bytes = text;
    out_.tokens.push_back(std::move(token));
    return absl::OkStatus();
  }

  // Not every byte needs a token: vocabularies leave out bytes that their training text did not
  // hold.
  absl::Status load_byte_tokens() {
    const auto& spellings = byte_level_spellings();
    for (int byte = 0; byte < kByteValues; ++byte) {
      const auto found = ids_.find(spellings[static_cast<std::size_t>(byte)]);
      if (found == ids_.end()) continue;
      const auto index = static_cast<std::size_t>(found->second);
      if ((*types_)[index] == kControl) {
        return invalid(kTokensKey, index, "control token is spelled as one byte");
      }
      out_.merger.set_byte_token(static_cast<unsigned char>(byte), found->second);
    }
    return absl::OkStatus();
  }

  absl::Status load_merges() {
    HS_ASSIGN_OR_RETURN(const std::vector<std::string>* merges, metadata_.get_strings(kMergesKey));
    if (merges->size() > kMaxTokens) {
      return absl::InvalidArgumentError(std::string(kMergesKey) + " has " +
                                        std::to_string(merges->size()) + " entries");
    }
    out_.merger.reserve(merges->size());
    for (std::size_t i = 0; i < merges->size(); ++i) {
      HS_RETURN_IF_ERROR(load_merge(i, (*merges)[i]));
    }
    return absl::OkStatus();
  }

  absl::Status load_merge(std::size_t i, const std::string& merge) {
    const std::size_t space = merge.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string::npos) {
      return invalid(kMergesKey, i, quoted(merge) + " is not two tokens with one space between");
    }
    const std::string left = merge.substr(0, space);
    const std::string right = merge.substr(space + 1);
    HS_ASSIGN_OR_RETURN(const base::TokenId left_id, merge_part(i, left));
    HS_ASSIGN_OR_RETURN(const base::TokenId right_id, merge_part(i, right));
    HS_ASSIGN_OR_RETURN(const base::TokenId result_id, merge_part(i, left + right));
    if (!out_.merger.add_merge(left_id, right_id, result_id)) {
      return invalid(kMergesKey, i, quoted(merge) + " appears twice");
    }
    return absl::OkStatus();
  }

  // A control token must never come out of ordinary text, so no merge may touch one.
  absl::StatusOr<base::TokenId> merge_part(std::size_t i, const std::string& text) const {
    const auto found = ids_.find(text);
    if (found == ids_.end()) return invalid(kMergesKey, i, "unknown token " + quoted(text));
    if ((*types_)[static_cast<std::size_t>(found->second)] == kControl) {
      return invalid(kMergesKey, i, "control token " + quoted(text));
    }
    return found->second;
  }

  absl::Status load_ids() {
    HS_ASSIGN_OR_RETURN(out_.bos, token_id("tokenizer.ggml.bos_token_id"));
    HS_ASSIGN_OR_RETURN(out_.eos, token_id("tokenizer.ggml.eos_token_id"));
    HS_ASSIGN_OR_RETURN(const auto eot, token_id("tokenizer.ggml.eot_token_id"));
    HS_ASSIGN_OR_RETURN(out_.adds_bos, metadata_.bool_or("tokenizer.ggml.add_bos_token", false));
    if (out_.adds_bos && !out_.bos) {
      return absl::InvalidArgumentError(
          "tokenizer.ggml.add_bos_token = true without tokenizer.ggml.bos_token_id");
    }
    if (out_.eos) out_.end_tokens.push_back(*out_.eos);
    if (eot && eot != out_.eos) out_.end_tokens.push_back(*eot);
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<base::TokenId>> token_id(std::string_view key) const {
    if (!metadata_.has(key)) return std::optional<base::TokenId>();
    HS_ASSIGN_OR_RETURN(const std::int64_t id, metadata_.get_int(key));
    if (id < 0 || static_cast<std::uint64_t>(id) >= tokens_->size()) {
      return absl::InvalidArgumentError(std::string(key) + " = " + std::to_string(id) +
                                        " is outside the vocabulary of " +
                                        std::to_string(tokens_->size()));
    }
    return std::optional<base::TokenId>(static_cast<base::TokenId>(id));
  }

  bool is_special(std::size_t i) const {
    return (*types_)[i] == kControl || (*types_)[i] == kUserDefined;
  }

  const format::Metadata& metadata_;
  const std::vector<std::string>* tokens_ = nullptr;
  const std::vector<std::int64_t>* types_ = nullptr;
  std::unordered_map<std::string_view, base::TokenId> ids_;  // views into *tokens_
  GgufVocabulary out_;
};

}  // namespace

absl::StatusOr<GgufVocabulary> load_gguf_vocabulary(const format::Metadata& metadata) {
  return Loader(metadata).load();
}

}  // namespace hisparse::text
