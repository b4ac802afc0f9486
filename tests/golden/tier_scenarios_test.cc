// The scenarios of the tiers on the small model, whole and split over ranks.
#include "tests/golden/tier_scenarios.h"

#include <gtest/gtest.h>

#include <tuple>

namespace hisparse::test {
namespace {

using Parameter = std::tuple<NamedTierScenario, std::int32_t>;

class TierScenario : public testing::TestWithParam<Parameter> {};

TEST_P(TierScenario, ChangesNoBit) {
  config::EngineSettings base = settings();
  base.tensor_parallel_size = std::get<1>(GetParam());
  TierScenarios scenarios(base);
  (scenarios.*std::get<0>(GetParam()).run)();
}

INSTANTIATE_TEST_SUITE_P(Ranks, TierScenario,
                         testing::Combine(testing::ValuesIn(kTierScenarios),
                                          testing::Values(1, 2, 8)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace hisparse::test
