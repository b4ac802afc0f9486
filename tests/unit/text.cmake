hisparse_test(text_test
  SRCS
    ${CMAKE_CURRENT_LIST_DIR}/text_chat_template_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/text_stop_matcher_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/text_tokenizer_test.cc
    ${CMAKE_CURRENT_LIST_DIR}/text_utf8_test.cc
  DEPS hisparse_text hisparse_nlohmann_json
  LABELS asan)
