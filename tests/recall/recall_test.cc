// Three hops over a context, each through one row that nothing predicts: answers are as good as
// exact bf16 rows allow, and the same wherever the pages lie.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/recall/recall_engine.h"

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
  std::string folder;
  std::vector<RecallContext> contexts;
  std::vector<RecallAnswers> resident;
};

config::EngineSettings settings_of(const Layout& layout) {
  constexpr std::int64_t kPageBytes =
      2 * 2 * kRecallLayers * kPageTokens * kRecallHeadDim * kShape.kv_heads;
  constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
  config::EngineSettings settings;
  settings.max_model_len = kTokens + kPageTokens;
  settings.max_num_seqs = kTogether;
  settings.max_num_batched_tokens = 512;
  settings.block_size = kPageTokens;
  settings.threads = 2;
  settings.kv_cache_memory_bytes = layout.resident * kPageBytes;
  if (layout.host + layout.disk == 0) return settings;
  settings.kv_tiering = config::KvTiering::kHybrid;
  settings.swap_space =
      layout.host == 0 ? 0.0 : (static_cast<double>(layout.host) + 0.5) * kPageBytes / kGibibyte;
  if (layout.disk > 0) {
    const transfer::PageShape page = {.layers = kRecallLayers,
                                      .layer_bytes = kPageBytes / kRecallLayers};
    settings.kv_disk_path = testing::TempDir();
    settings.kv_disk_space =
        transfer::DiskPool::file_bytes(static_cast<std::int32_t>(layout.disk), page);
  }
  return settings;
}

std::vector<RecallAnswers> ask_all(RecallEngine& engine, const Fixture& fixture) {
  std::vector<RecallAnswers> answers;
  for (const RecallContext& context : fixture.contexts) answers.push_back(engine.ask(context));
  return answers;
}

const Fixture& fixture() {
  static const Fixture shared = [] {
    Fixture made;
    const RecallModel model(kShape);
    made.folder = testing::TempDir() + "hisparse-recall";
    std::filesystem::create_directories(made.folder);
    EXPECT_TRUE(model.write(made.folder).ok());
    for (std::int32_t number = 0; number < kContexts; ++number) {
      ContextOptions options = {.seed = 7, .number = number, .tokens = kTokens};
      options.page_tokens = kPageTokens;
      for (std::int64_t page = 1; page < kPages; ++page) options.edges.push_back(page);
      made.contexts.push_back(make_context(model.vocabulary(), options));
    }
    RecallEngine engine(made.folder, settings_of({"resident", kContexts * kPages + 40, 0, 0}));
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
  std::cout << score.table();
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
