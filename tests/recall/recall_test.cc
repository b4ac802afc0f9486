// Three hops over a context, each through one row that nothing predicts: answers are as good as
// exact bf16 rows allow, and the same wherever the pages lie.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/recall/recall_engine.h"
#include "tests/recall/recall_rows.h"

namespace hisparse::test {
namespace {

constexpr RecallShape kShape = {.seed = 20, .kv_heads = 2, .chains = 256};
constexpr std::int64_t kTokens = 4096;
constexpr std::int32_t kPageTokens = 64;
constexpr std::int64_t kPages = kTokens / kPageTokens;
// 256 chains over eight rungs, so many times.
constexpr std::int32_t kContexts = 4;
constexpr std::int32_t kTogether = 16;  // questions

struct Layout {
  const char* name;
  std::int64_t resident;  // pages
  std::int64_t host;
  std::int64_t disk;
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

// What all tests share: the model's folder, the contexts, and what an engine answers with which
// everything fits.
struct Fixture {
  RecallModel model{kShape};
  std::string folder;
  std::vector<RecallContext> contexts;
  std::vector<RecallAnswers> resident;
};

config::EngineSettings settings_of(const Layout& layout) {
  config::EngineSettings settings = recall_settings(kShape, {.tokens = kTokens,
                                                             .page_tokens = kPageTokens,
                                                             .together = kTogether,
                                                             .resident = layout.resident,
                                                             .host = layout.host,
                                                             .disk = layout.disk,
                                                             .disk_folder = testing::TempDir()});
  settings.max_num_batched_tokens = 500;  // chunks that begin within pages
  return settings;
}

const Layout kResident = {"Resident", kContexts* kPages + 40, 0, 0};

std::vector<RecallAnswers> ask_all(RecallEngine& engine, const Fixture& fixture) {
  std::vector<RecallAnswers> answers;
  for (const RecallContext& context : fixture.contexts) answers.push_back(engine.ask(context));
  return answers;
}

const Fixture& fixture() {
  static const Fixture shared = [] {
    Fixture made;
    made.folder = testing::TempDir() + "hisparse-recall";
    std::filesystem::create_directories(made.folder);
    EXPECT_TRUE(made.model.write(made.folder).ok());
    for (std::int32_t number = 0; number < kContexts; ++number) {
      ContextOptions options = {.seed = 7, .number = number, .tokens = kTokens};
      options.page_tokens = kPageTokens;
      for (std::int64_t page = 1; page < kPages; ++page) options.edges.push_back(page);
      made.contexts.push_back(make_context(made.model.vocabulary(), options));
    }
    RecallEngine engine(made.folder, settings_of(kResident));
    made.resident = ask_all(engine, made);
    return made;
  }();
  return shared;
}

TEST(Recall, ResidentRowsAnswerWhatTheirRoundingAllows) {
  RecallScore score;
  for (std::size_t i = 0; i < fixture().contexts.size(); ++i) {
    score.add(fixture().contexts[i], fixture().resident[i]);
    // The others found the whole context.
    const std::size_t others = fixture().contexts[i].needles.size() - 1;
    EXPECT_EQ(fixture().resident[i].cached_tokens, static_cast<std::int64_t>(others) * kTokens);
  }
  EXPECT_EQ(score.find_shortfall(), "") << score.table();
  for (std::size_t rung = 0; rung < kRungs; ++rung) EXPECT_GE(score.rungs[rung].asked, 128);
}

// Rows with as many bits in a value as `kept`, sign and exponent not counted.
class CoarserRows final : public engine::KvSource {
 public:
  CoarserRows(engine::KvSource& rows, int kept) : rows_(rows), kept_(kept) {}

  void fill(const engine::KvRows& rows) override {
    rows_.fill(rows);
    // Hops alone: layer 0 matches positions.
    if (rows.layer == 0) return;
    const std::uint32_t unit = 1u << (kBits - kept_);
    for (std::size_t at = 0; at < rows.keys.size(); at += sizeof(std::uint16_t)) {
      std::uint16_t bits;
      std::memcpy(&bits, rows.keys.data() + at, sizeof(bits));
      bits = static_cast<std::uint16_t>((bits + unit / 2) / unit * unit);
      std::memcpy(rows.keys.data() + at, &bits, sizeof(bits));
    }
  }

 private:
  static constexpr int kBits = 7;  // of bf16
  engine::KvSource& rows_;
  const int kept_;
};

// What the ladder is for: bits that are lost show at its upper rungs first.
TEST(Recall, CoarserRowsMissAtTheUpperRungs) {
  const RecallContext& context = fixture().contexts.front();
  RecallRows exact(fixture().model, context);
  const auto score_with = [&](int kept) {
    CoarserRows rows(exact, kept);
    RecallEngine engine(fixture().folder, settings_of(kResident), &rows);
    RecallScore score;
    score.add(context, engine.ask(context));
    return score;
  };
  const auto share = [](const RungScore& rung) {
    return static_cast<double>(rung.right) / rung.asked;
  };
  const RecallScore six = score_with(6), three = score_with(3);
  EXPECT_LT(share(six.rungs[0]), 0.98);
  EXPECT_LT(share(three.rungs[0]), 0.75);
  EXPECT_LT(share(three.rungs[1]), 0.9);
  for (std::size_t rung = 4; rung < kRungs; ++rung) EXPECT_EQ(share(three.rungs[rung]), 1.0);
}

class RecallTiers : public testing::TestWithParam<Layout> {};

TEST_P(RecallTiers, AnswersAreThoseOfResidentRows) {
  RecallEngine engine(fixture().folder, settings_of(GetParam()));
  const std::vector<RecallAnswers> answers = ask_all(engine, fixture());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].tokens, fixture().resident[i].tokens) << "context " << i;
  }
  const auto stats = engine.stats();
  // Needles lie in every page, so each tier was asked.
  EXPECT_GT(stats->kv.hit_pages[index_of(kv::Tier::kResident)], 0);
  EXPECT_EQ(stats->kv.hit_pages[index_of(kv::Tier::kHost)] > 0, GetParam().host > 0);
  EXPECT_EQ(stats->kv.hit_pages[index_of(kv::Tier::kDisk)] > 0, GetParam().disk > 0);
  EXPECT_EQ(stats->kv.failed_transfers, 0);
  EXPECT_EQ(stats->kv.lost_pages, 0);
}

// The same with rows that were injected in place of a prefill.
TEST_P(RecallTiers, InjectedRowsAnswerAlike) {
  const RecallContext& context = fixture().contexts.front();
  RecallRows rows(fixture().model, context);
  const auto ask = [&](config::EngineSettings settings) {
    RecallEngine engine(fixture().folder, settings, &rows);
    RecallAnswers answers = engine.ask(context);
    // Nothing but the questions ran through the model.
    const auto stats = engine.stats();
    EXPECT_LE(stats->linear_rows, stats->linear_calls * std::int64_t{kTogether});
    EXPECT_EQ(stats->generation_tokens, static_cast<std::int64_t>(context.needles.size()));
    EXPECT_EQ(stats->kv.hit_pages[index_of(kv::Tier::kDisk)] > 0, settings.kv_disk_space > 0);
    return answers;
  };
  const RecallAnswers resident = ask(settings_of(kResident));
  RecallScore score;
  score.add(context, resident);
  EXPECT_EQ(score.find_shortfall(), "") << score.table();
  EXPECT_EQ(ask(settings_of(GetParam())).tokens, resident.tokens);
  config::EngineSettings ranks = settings_of(GetParam());
  ranks.tensor_parallel_size = 2;
  EXPECT_EQ(ask(ranks).tokens, resident.tokens);
}

// The slab holds the pages that the questions write and a few of the context.
const Layout kLayouts[] = {
    {"Host", 24, 2 * kPages, 0},
    {"Disk", 24, 0, 2 * kPages},
    {"Mixed", 24, 20, 2 * kPages},
};

INSTANTIATE_TEST_SUITE_P(Places, RecallTiers, testing::ValuesIn(kLayouts),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hisparse::test
