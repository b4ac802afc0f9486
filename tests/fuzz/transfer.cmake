hisparse_fuzz(manifest_fuzz SRCS ${CMAKE_CURRENT_LIST_DIR}/manifest_fuzz.cc DEPS hisparse_transfer)
