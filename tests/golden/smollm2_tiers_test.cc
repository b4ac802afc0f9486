// The scenarios of the tiers on SmolLM2 as it is served: stored weights, bf16 rows.
// HISPARSE_SMOLLM2 names the model file (see smollm2_test.cc).
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/golden/tier_scenarios.h"

namespace hisparse::test {
namespace {

class SmolLm2Tiers : public testing::TestWithParam<NamedTierScenario> {};

TEST_P(SmolLm2Tiers, ChangeNoBit) {
  const char* path = std::getenv("HISPARSE_SMOLLM2");
  if (path == nullptr || *path == '\0') {
    GTEST_SKIP() << "HISPARSE_SMOLLM2 does not name the model file";
  }
  config::EngineSettings base = settings();
  base.model = path;
  TierScenarios scenarios(base);
  (scenarios.*GetParam().run)();
}

INSTANTIATE_TEST_SUITE_P(Scenarios, SmolLm2Tiers, testing::ValuesIn(kTierScenarios),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hisparse::test
