// Compares token ids of the real vocabulary with Hugging Face's. HISPARSE_SMOLLM2 names the GGUF
// file.
#include <gtest/gtest.h>

#include <cstdlib>

#include "format/checkpoint.h"
#include "tests/unit/text_fixtures.h"
#include "text/tokenizer.h"

namespace hisparse::text {
namespace {

TEST(SmolLm2Tokenizer, AgreesWithHuggingFace) {
  const char* path = std::getenv("HISPARSE_SMOLLM2");
  if (!path) GTEST_SKIP() << "HISPARSE_SMOLLM2 does not name the model file";
  const auto checkpoint = format::Checkpoint::open(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto tokenizer = Tokenizer::from_gguf((*checkpoint)->metadata());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const nlohmann::json fixture = testing::read_json("smollm2_tokens.json");
  for (const testing::TokenCase& one : testing::token_cases(fixture.at("cases"))) {
    const auto ids = (*tokenizer)->encode(one.text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, one.ids) << one.text.substr(0, 80);
  }
}

}  // namespace
}  // namespace hisparse::text
