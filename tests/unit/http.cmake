if(HISPARSE_BUILD_SERVER)
  hisparse_test(api_test
    SRCS
      ${CMAKE_CURRENT_LIST_DIR}/api_prepare_test.cc
      ${CMAKE_CURRENT_LIST_DIR}/api_request_body_test.cc
      ${CMAKE_CURRENT_LIST_DIR}/api_response_test.cc
    DEPS hisparse_api LABELS asan)
  hisparse_test(http_parts_test
    SRCS ${CMAKE_CURRENT_LIST_DIR}/http_parts_test.cc
    DEPS hisparse_http
  LABELS asan)
  hisparse_test(http_server_test
    SRCS ${CMAKE_CURRENT_LIST_DIR}/http_server_test.cc
         ${CMAKE_CURRENT_LIST_DIR}/http_server_stream_test.cc
    DEPS hisparse_http LABELS asan tsan)
  hisparse_test(obs_test
    SRCS ${CMAKE_CURRENT_LIST_DIR}/obs_test.cc
    DEPS hisparse_obs)
endif()
