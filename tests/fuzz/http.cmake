if(HISPARSE_BUILD_SERVER)
  hisparse_fuzz(chat_request_fuzz
    SRCS ${CMAKE_CURRENT_LIST_DIR}/chat_request_fuzz.cc
    DEPS hisparse_api)
endif()
