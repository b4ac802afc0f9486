hisparse_test(chunk_share_test SRCS ${CMAKE_CURRENT_LIST_DIR}/chunk_share_test.cc DEPS hisparse_base
  LABELS tsan)
hisparse_test(thread_pool_test SRCS ${CMAKE_CURRENT_LIST_DIR}/thread_pool_test.cc DEPS hisparse_base
  LABELS tsan)
foreach(operators linear rowwise attention page_mass sampling stream)
  hisparse_test(cpu_${operators}_test SRCS ${CMAKE_CURRENT_LIST_DIR}/cpu_${operators}_test.cc
    DEPS hisparse_device LABELS asan)
endforeach()
hisparse_test(cpu_quantised_linear_test
  SRCS ${CMAKE_CURRENT_LIST_DIR}/cpu_quantised_linear_test.cc DEPS hisparse_device hisparse_format
  LABELS asan)
add_library(hisparse_emulated_kernels STATIC EXCLUDE_FROM_ALL
  ${CMAKE_CURRENT_LIST_DIR}/avx512_emulated/kernels_v4_emulated.cc)
target_include_directories(hisparse_emulated_kernels PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(hisparse_emulated_kernels PUBLIC hisparse_device)
# Functions that take AVX-512 vectors have no stable ABI here; all of them are inlined.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/avx512_emulated/kernels_v4_emulated.cc PROPERTIES
  COMPILE_OPTIONS "-march=x86-64-v3;${HISPARSE_KERNEL_OPTIONS};-Wno-psabi")
foreach(kernels avx512 pack)
  hisparse_test(cpu_${kernels}_test SRCS ${CMAKE_CURRENT_LIST_DIR}/cpu_${kernels}_test.cc
    DEPS hisparse_emulated_kernels LABELS asan)
endforeach()
hisparse_test(comm_test SRCS ${CMAKE_CURRENT_LIST_DIR}/comm_test.cc DEPS hisparse_comm
  LABELS asan tsan)

# Sanitizers add shared symbols of their own.
if(CMAKE_NM AND NOT HISPARSE_SANITIZE AND NOT HISPARSE_BUILD_FUZZERS)
  add_test(NAME cpu_kernel_symbols COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM}
    "-DOBJECTS=$<TARGET_OBJECTS:hisparse_device>"
    -P ${CMAKE_CURRENT_LIST_DIR}/cpu_kernel_symbols/check.cmake)
endif()
