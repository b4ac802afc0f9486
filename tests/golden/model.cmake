hisparse_test(model_golden_test
  SRCS model_golden_test.cc
  DEPS hisparse_test_support hisparse_nlohmann_json)
hisparse_test(numerics_contract_test
  SRCS numerics_contract_test.cc
  DEPS hisparse_test_support)
hisparse_test(smollm2_test
  SRCS smollm2_test.cc
  DEPS hisparse_test_support hisparse_nlohmann_json
  LABELS model)
hisparse_test(engine_contract_test
  SRCS engine_contract_test.cc
  DEPS hisparse_test_support hisparse_engine
  LABELS asan tsan)
hisparse_test(weights_test
  SRCS weights_test.cc
  DEPS hisparse_test_support)
hisparse_test(tier_persistence_test
  SRCS tier_persistence_test.cc
  DEPS hisparse_test_support hisparse_engine)
hisparse_test(tier_contract_test
  SRCS tier_contract_test.cc
  DEPS hisparse_test_support hisparse_engine
  LABELS asan tsan)
# Long; under the sanitizers tier_contract_test takes the same ways.
hisparse_test(tier_scenarios_test
  SRCS tier_scenarios_test.cc
  DEPS hisparse_test_support hisparse_engine)
hisparse_test(smollm2_tiers_test
  SRCS smollm2_tiers_test.cc
  DEPS hisparse_test_support hisparse_engine
  LABELS model)
hisparse_test(kv_source_test
  SRCS kv_source_test.cc
  DEPS hisparse_test_support hisparse_engine
  LABELS asan tsan)
