// Arbitrary text through the tiny vocabulary: decoding gives the text back, with and without user
// spans.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "tests/unit/text_fixtures.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using namespace hisparse::text;  // NOLINT: a fuzz target of this folder only

std::unique_ptr<const Tokenizer> load(const std::string& pre) {
  const nlohmann::json fixture = testing::read_json("tiny_bpe.json");
  auto tokenizer =
      Tokenizer::from_gguf(hisparse::format::Metadata(testing::tiny_metadata(fixture, pre)));
  HS_CHECK(tokenizer.ok());
  return std::move(*tokenizer);
}

enum class Spelling { kBytes, kTemplate };

std::string decode(const Tokenizer& tokenizer, const std::vector<hisparse::base::TokenId>& ids,
                   Spelling spelling) {
  std::string text;
  for (const hisparse::base::TokenId id : ids) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    const bool control = bytes.empty() && spelling == Spelling::kTemplate;
    text += control ? tokenizer.token_text(id) : bytes;
  }
  return text;
}

void check(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode(text);
  HS_CHECK(ids.ok() && decode(tokenizer, *ids, Spelling::kTemplate) == text);
  // All of it from a user: no control token, so the bytes alone are the text.
  const UserSpan everything{0, text.size()};
  const auto plain = tokenizer.encode(text, {&everything, 1});
  HS_CHECK(plain.ok() && decode(tokenizer, *plain, Spelling::kBytes) == text);
  const UserSpan half{text.size() / 4, text.size() / 2};
  const auto mixed = tokenizer.encode(text, {&half, 1});
  HS_CHECK(mixed.ok() && decode(tokenizer, *mixed, Spelling::kTemplate) == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::unique_ptr<const Tokenizer> kTokenizers[] = {load("smollm"), load("gpt-2")};
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const auto& tokenizer : kTokenizers) {
    HS_CHECK(tokenizer->encode(bytes).ok() == is_valid_utf8(bytes));
    check(*tokenizer, to_valid_utf8(bytes));
  }
  return 0;
}
