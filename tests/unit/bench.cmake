if(HISPARSE_BUILD_SERVER)
  hisparse_test(bench_test
    SRCS
      ${CMAKE_CURRENT_LIST_DIR}/bench_kv_test.cc
      ${CMAKE_CURRENT_LIST_DIR}/bench_report_test.cc
      ${CMAKE_CURRENT_LIST_DIR}/bench_run_test.cc
      ${CMAKE_CURRENT_LIST_DIR}/bench_statistics_test.cc
      ${CMAKE_CURRENT_LIST_DIR}/bench_workload_test.cc
    DEPS hisparse_bench LABELS asan)
endif()
