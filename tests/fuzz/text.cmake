foreach(name chat_template_fuzz utf8_fuzz)
  hisparse_fuzz(${name} SRCS ${CMAKE_CURRENT_LIST_DIR}/${name}.cc DEPS hisparse_text)
endforeach()
hisparse_fuzz(tokenizer_fuzz
  SRCS ${CMAKE_CURRENT_LIST_DIR}/tokenizer_fuzz.cc
  DEPS hisparse_text hisparse_nlohmann_json)
