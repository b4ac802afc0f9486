// Contexts of the recall fixture and what is asked about them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tests/recall/recall_vocabulary.h"

namespace hisparse::test {

// A question: the token behind the context, and the token that must follow.
struct Needle {
  static constexpr std::int32_t kAbsent = kRungs;  // rung of keys that the context does not hold

  base::TokenId query = 0;
  base::TokenId answer = 0;
  std::int32_t rung = 0;                       // of kDecoyCosines; then "no decoy"; then kAbsent
  std::array<std::int64_t, kRecallHops> rows;  // whose keys and values decide, hop by hop
  std::int32_t decoy_hop = -1;                 // the hop that has a decoy; -1: none
};

struct ContextOptions {
  std::uint64_t seed = 1;
  std::int32_t number = 0;  // contexts of one seed differ in links, places and fillers
  std::int64_t tokens = 0;
  std::int64_t page_tokens = 64;
  // Pages at whose beginning a needle must lie, beside the first and the last row: at one row
  // before, at the first or at the second row of the page, in turn by the context's number.
  std::vector<std::int64_t> edges = {};
};

struct RecallContext {
  std::vector<base::TokenId> tokens;
  std::vector<Needle> needles;  // every chain of the vocabulary, then the absent keys
};

// Deterministic. The chains may take half of the tokens (checked).
RecallContext make_context(const RecallVocabulary& vocabulary, const ContextOptions& options);

}  // namespace hisparse::test
