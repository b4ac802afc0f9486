hisparse_test(lifecycle_controller_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/lifecycle_controller_test.cc
       ${CMAKE_CURRENT_LIST_DIR}/lifecycle_adopt_test.cc ${CMAKE_CURRENT_LIST_DIR}/lifecycle_heat_test.cc
       ${CMAKE_CURRENT_LIST_DIR}/lifecycle_tiers_test.cc
  DEPS hisparse_kv
  LABELS asan)
hisparse_test(kv_parts_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/kv_parts_test.cc
  DEPS hisparse_kv
  LABELS asan)
hisparse_test(kv_invariants_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/kv_invariants_test.cc
  DEPS hisparse_kv
  LABELS asan)
hisparse_test(transfer_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/transfer_test.cc
  DEPS hisparse_transfer
  LABELS asan)
hisparse_test(page_store_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/manifest_format_test.cc ${CMAKE_CURRENT_LIST_DIR}/page_keeping_test.cc
       ${CMAKE_CURRENT_LIST_DIR}/page_store_test.cc
  DEPS hisparse_transfer
  LABELS asan)
hisparse_test(slice_reader_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/slice_reader_test.cc
  DEPS hisparse_transfer
  LABELS asan tsan)
hisparse_test(transfer_tiers_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/transfer_tiers_test.cc
  DEPS hisparse_transfer
  LABELS asan tsan)
hisparse_test(kv_heat_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/kv_heat_test.cc
  DEPS hisparse_kv
  LABELS asan)
# Counts what is allocated, which the sanitizers do themselves.
if(NOT HISPARSE_SANITIZE)
  hisparse_test(kv_metadata_test
    SRCS ${CMAKE_CURRENT_LIST_DIR}/kv_metadata_test.cc
    DEPS hisparse_kv)
endif()
