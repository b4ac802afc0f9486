hisparse_test(text_property_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/text_streaming_test.cc
  DEPS hisparse_text
  LABELS asan)
