hisparse_test(plan_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/plan_capacity_test.cc ${CMAKE_CURRENT_LIST_DIR}/plan_geometry_test.cc
       ${CMAKE_CURRENT_LIST_DIR}/plan_speed_test.cc
  DEPS hisparse_plan
  LABELS asan)
if(HISPARSE_BUILD_SERVER)
  hisparse_test(plan_report_test
    SRCS ${CMAKE_CURRENT_LIST_DIR}/plan_report_test.cc
    DEPS hisparse_plan_report
    LABELS asan)
endif()
