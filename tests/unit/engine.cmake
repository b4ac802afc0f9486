hisparse_test(engine_test SRCS ${CMAKE_CURRENT_LIST_DIR}/engine_test.cc DEPS hisparse_engine LABELS asan tsan)
