# Skips itself, by name, unless HISPARSE_SMOLLM2 names the model file.
hisparse_test(text_smollm2_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/text_smollm2_test.cc
  DEPS hisparse_text hisparse_format hisparse_nlohmann_json
  LABELS model)
