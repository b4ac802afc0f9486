hisparse_test(output_stage_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/output_channel_test.cc ${CMAKE_CURRENT_LIST_DIR}/output_stage_test.cc
  DEPS hisparse_engine
  LABELS asan tsan)
hisparse_test(scheduler_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/scheduler_test.cc
  DEPS hisparse_sched
  LABELS asan)
hisparse_test(config_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/config_plan_test.cc ${CMAKE_CURRENT_LIST_DIR}/config_test.cc
       ${CMAKE_CURRENT_LIST_DIR}/config_tiers_test.cc
  DEPS hisparse_config
  LABELS asan)
hisparse_test(model_spec_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/model_spec_test.cc ${CMAKE_CURRENT_LIST_DIR}/model_shard_test.cc
       ${CMAKE_CURRENT_LIST_DIR}/model_weight_map_test.cc
  DEPS hisparse_model
  LABELS asan)
