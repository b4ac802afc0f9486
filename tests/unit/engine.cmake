hisparse_test(engine_test SRCS ${CMAKE_CURRENT_LIST_DIR}/engine_test.cc DEPS hisparse_engine LABELS asan tsan)
hisparse_test(page_observer_test SRCS ${CMAKE_CURRENT_LIST_DIR}/page_observer_test.cc DEPS hisparse_engine LABELS asan)
