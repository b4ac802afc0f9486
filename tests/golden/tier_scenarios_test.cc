// The scenarios of the tiers on the small models, whole and split over ranks.
#include "tests/golden/tier_scenarios.h"

#include <gtest/gtest.h>

#include <tuple>

namespace hisparse::test {
namespace {

struct NamedModel {
  const char* name;  // of the folder
  std::int32_t many_tokens;
};

// Eight query heads each: grouped rows with scaled positions, a KV head for each query head, and
// grouped rows with one matrix for both ends.
constexpr NamedModel kModels[] = {
    {"llama3_rope", TierScenarios::kManyTokens},
    {"llama_mha", TierScenarios::kFewerTokens},
    {"llama_gqa_tied", TierScenarios::kFewerTokens},
};

void PrintTo(const NamedModel& model, std::ostream* out) { *out << model.name; }

using Parameter = std::tuple<NamedTierScenario, NamedModel, std::int32_t>;

class TierScenario : public testing::TestWithParam<Parameter> {};

TEST_P(TierScenario, ChangesNoBit) {
  const auto& [scenario, model, ranks] = GetParam();
  config::EngineSettings base = settings();
  base.model = test_data(std::string("golden/data/") + model.name);
  base.dtype = config::DTypeChoice::kF32;
  base.tensor_parallel_size = ranks;
  TierScenarios scenarios(base, model.many_tokens);
  (scenarios.*scenario.run)();
}

std::string name_of(const testing::TestParamInfo<Parameter>& info) {
  const auto& [scenario, model, ranks] = info.param;
  return std::string(scenario.name) + "_" + model.name + "_" + std::to_string(ranks);
}

INSTANTIATE_TEST_SUITE_P(Ranks, TierScenario,
                         testing::Combine(testing::ValuesIn(kTierScenarios),
                                          testing::ValuesIn(kModels), testing::Values(1, 2, 8)),
                         name_of);

}  // namespace
}  // namespace hisparse::test
