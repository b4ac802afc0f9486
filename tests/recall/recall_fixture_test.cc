// The fixture is what it says: otherwise a recall of 100 % would say nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "tests/recall/recall_context.h"
#include "tests/recall/recall_model.h"

namespace hisparse::test {
namespace {

constexpr RecallShape kShape = {.seed = 3, .kv_heads = 2, .chains = 64, .fillers = 100};

double dot(std::span<const float> a, std::span<const float> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

TEST(RecallVocabulary, DecoysLieAtTheirCosines) {
  const RecallVocabulary vocabulary(kShape);
  for (int hop = 0; hop < kRecallHops; ++hop) {
    for (std::int32_t chain = 0; chain < kShape.chains; ++chain) {
      const auto key = vocabulary.id(vocabulary.hop_key(hop, chain));
      EXPECT_NEAR(dot(key, key), 1.0, 0.01);
      if (vocabulary.rung(chain) == kRungs - 1) continue;
      const double gap = 1.0 - kDecoyCosines[static_cast<std::size_t>(vocabulary.rung(chain))];
      const auto decoy = vocabulary.id(vocabulary.decoy(hop, chain));
      EXPECT_NEAR(dot(key, key) - dot(key, decoy), gap, 0.05 * gap);
    }
  }
}

// Else a filler could win against the sink, or against the last rung.
TEST(RecallVocabulary, NoOtherCodeComesNearAKey) {
  const RecallVocabulary vocabulary(kShape);
  double nearest = 0.0;
  for (int hop = 0; hop < kRecallHops; ++hop) {
    for (std::int32_t chain = 0; chain < kShape.chains; ++chain) {
      const base::TokenId key = vocabulary.hop_key(hop, chain);
      for (base::TokenId other = 2; other < vocabulary.size(); ++other) {
        if (other == key || other == vocabulary.decoy(hop, chain)) continue;
        if (vocabulary.head_of(other) != vocabulary.head_of(key)) continue;
        nearest = std::max(nearest, dot(vocabulary.id(key), vocabulary.id(other)));
      }
    }
  }
  EXPECT_LT(nearest, 0.7);
  EXPECT_GT(nearest, 0.3);
}

TEST(RecallVocabulary, RotationsAreOrthogonalAndDiffer) {
  const RecallVocabulary vocabulary(kShape);
  constexpr std::size_t kCode = RecallVocabulary::kCode;
  for (int hop = 0; hop < kRecallHops; ++hop) {
    const auto rotation = vocabulary.rotation(hop, 1);
    for (std::size_t i = 0; i < kCode; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        double product = 0.0;
        for (std::size_t k = 0; k < kCode; ++k) {
          product += rotation[i * kCode + k] * rotation[j * kCode + k];
        }
        EXPECT_NEAR(product, i == j ? 1.0 : 0.0, 1e-12);
      }
    }
    EXPECT_NE(rotation[0], vocabulary.rotation((hop + 1) % kRecallHops, 1)[0]);
    EXPECT_NE(rotation[0], vocabulary.rotation(hop, 0)[0]);
  }
}

class RecallContexts : public testing::Test {
 protected:
  static RecallContext make(std::int32_t number) {
    ContextOptions options = {.seed = 5, .number = number, .tokens = 2048, .page_tokens = 64};
    for (std::int64_t page = 1; page < 32; ++page) options.edges.push_back(page);
    return make_context(vocabulary(), options);
  }
  static const RecallVocabulary& vocabulary() {
    static const RecallVocabulary vocabulary(kShape);
    return vocabulary;
  }
};

TEST_F(RecallContexts, ChainsLeadToTheAnswersAndDecoysElsewhere) {
  const RecallContext context = make(0);
  std::map<base::TokenId, base::TokenId> next;
  for (std::size_t i = 1; i < context.tokens.size(); ++i) {
    if (!vocabulary().is_key(context.tokens[i - 1])) continue;
    // A key of a chain occurs once.
    const bool fresh = next.emplace(context.tokens[i - 1], context.tokens[i]).second;
    EXPECT_TRUE(fresh || context.tokens[i - 1] >= vocabulary().filler(0));
  }
  const auto denoted = [&](base::TokenId key) { return next.at(key) - vocabulary().value_of(0); };
  for (const Needle& needle : context.needles) {
    if (needle.rung == Needle::kAbsent) {
      EXPECT_EQ(std::ranges::count(context.tokens, needle.query), 0);
      continue;
    }
    base::TokenId at = needle.query;
    for (int hop = 0; hop < kRecallHops; ++hop) {
      const auto row = static_cast<std::size_t>(needle.rows[static_cast<std::size_t>(hop)]);
      EXPECT_EQ(context.tokens[row - 1], at);
      if (hop == needle.decoy_hop) {
        const base::TokenId decoy = vocabulary().decoy(hop, at - vocabulary().hop_key(hop, 0));
        EXPECT_NE(denoted(decoy), denoted(at));
      }
      at = denoted(at);
    }
    EXPECT_EQ(at, needle.answer);
  }
}

TEST_F(RecallContexts, NeedlesLieAtEveryEdgeInTurn) {
  std::map<std::int64_t, std::set<std::int64_t>> offsets;  // by edge
  for (std::int32_t number = 0; number < 3; ++number) {
    const RecallContext context = make(number);
    std::set<std::int64_t> rows;
    for (const Needle& needle : context.needles) {
      if (needle.rung != Needle::kAbsent) rows.insert(needle.rows.begin(), needle.rows.end());
    }
    EXPECT_TRUE(rows.contains(2));
    EXPECT_TRUE(rows.contains(2047));
    for (std::int64_t page = 1; page < 32; ++page) {
      const std::int64_t offset = (page - 1 + number) % 3 - 1;
      if (rows.contains(page * 64 + offset)) offsets[page].insert(offset);
    }
  }
  for (std::int64_t page = 1; page < 32; ++page) EXPECT_EQ(offsets[page].size(), 3U);
}

TEST_F(RecallContexts, EveryRungAndHopIsAsked) {
  std::map<std::pair<std::int32_t, std::int32_t>, int> asked;
  for (std::int32_t number = 0; number < 3; ++number) {
    for (const Needle& needle : make(number).needles) ++asked[{needle.rung, needle.decoy_hop}];
  }
  for (std::int32_t rung = 0; rung < kRungs - 1; ++rung) {
    for (std::int32_t hop = 0; hop < kRecallHops; ++hop) EXPECT_EQ((asked[{rung, hop}]), 8);
  }
  EXPECT_EQ((asked[{Needle::kAbsent, -1}]), 3 * kShape.absent);
}

}  // namespace
}  // namespace hisparse::test
