hisparse_test(lifecycle_model_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/lifecycle_model_test.cc ${CMAKE_CURRENT_LIST_DIR}/lifecycle_model.cc
  DEPS hisparse_kv
  LABELS asan)
