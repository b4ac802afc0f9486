// Logits and greedy tokens of tiny Llama models against transformers (fixtures:
// tests/golden/README.md).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/model_rig.h"

namespace hisparse::test {
namespace {

using nlohmann::json;

constexpr double kLogitTolerance = 1e-4;
// Activations of 16 bits are rounded to one part in 64768 of the largest of their group.
constexpr double kAsStoredTolerance = 5e-4;
constexpr double kAsStoredRankTolerance = 1e-4;
constexpr double kRankTolerance = 1e-5;  // relative to the largest logit
constexpr int kGreedySteps = 64;

struct Fixture {
  const char* name;
  const char* checkpoint;
  const char* expected;
  device::Compute compute = device::Compute::kF32;
  double tolerance = kLogitTolerance;
  double rank_tolerance = kRankTolerance;
};

void PrintTo(const Fixture& fixture, std::ostream* out) { *out << fixture.name; }

const Fixture kFixtures[] = {
    {"GroupedQueryTied", "golden/data/llama_gqa_tied", "golden/data/llama_gqa_tied/expected.json"},
    {"MultiHeadUntied", "golden/data/llama_mha", "golden/data/llama_mha/expected.json"},
    {"Llama3Scaling", "golden/data/llama3_rope", "golden/data/llama3_rope/expected.json"},
    {"QuantisedGguf", "golden/data/tiny_llama.gguf", "golden/data/tiny_llama.expected.json"},
    {"QuantisedGgufAsStored", "golden/data/tiny_llama.gguf", "golden/data/tiny_llama.expected.json",
     device::Compute::kInt16, kAsStoredTolerance, kAsStoredRankTolerance},
};

json read_json(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return json::parse(file);
}

class ModelGolden : public testing::TestWithParam<Fixture> {
 protected:
  json cases() const { return read_json(test_data(GetParam().expected)).at("cases"); }
  ModelRig make_rig(RigOptions options = {}) const {
    options.compute = GetParam().compute;
    return ModelRig(test_data(GetParam().checkpoint), options);
  }
};

TEST_P(ModelGolden, LogitsEqualTransformers) {
  ModelRig rig = make_rig();
  for (const json& example : cases()) {
    if (!example.contains("logits")) continue;
    SCOPED_TRACE(example.at("name").get<std::string>());
    const auto logits = rig.prefill_all(0, example.at("prompt").get<std::vector<base::TokenId>>());
    const auto positions = example.at("positions").get<std::vector<std::size_t>>();
    ASSERT_FALSE(positions.empty());
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const auto expected = example.at("logits").at(i).get<Logits>();
      EXPECT_LT(max_difference(logits.at(positions[i]), expected), GetParam().tolerance)
          << "position " << positions[i];
    }
  }
}

TEST_P(ModelGolden, GreedyTokensEqualTransformers) {
  ModelRig rig = make_rig();
  for (const json& example : cases()) {
    SCOPED_TRACE(example.at("name").get<std::string>());
    const auto prompt = example.at("prompt").get<std::vector<base::TokenId>>();
    const auto expected = example.at("greedy_ids").get<std::vector<base::TokenId>>();
    ASSERT_EQ(expected.size(), kGreedySteps);
    std::vector<base::TokenId> greedy = {argmax(rig.prefill(0, 0, prompt))};
    while (greedy.size() < expected.size()) {
      const auto position = static_cast<std::int64_t>(prompt.size() + greedy.size()) - 1;
      greedy.push_back(argmax(rig.prefill(0, position, {greedy.back()})));
    }
    EXPECT_EQ(greedy, expected);
  }
}

TEST_P(ModelGolden, TensorParallelSizesAgree) {
  const auto prompt = cases().at(0).at("prompt").get<std::vector<base::TokenId>>();
  const std::vector<Logits> alone = make_rig().prefill_all(0, prompt);
  for (std::int32_t ranks : {2, 4, 8}) {
    const std::vector<Logits> split = make_rig({.ranks = ranks}).prefill_all(0, prompt);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_LT(max_difference(alone[i], split[i]),
                GetParam().rank_tolerance * max_magnitude(alone[i]))
          << ranks << " ranks, position " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModelGolden, testing::ValuesIn(kFixtures),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hisparse::test
