# hisparse_library(<name> SRCS … DEPS …): one static library per folder, headers rooted at src/.
function(hisparse_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_library(hisparse_${name} STATIC ${ARG_SRCS})
  target_include_directories(hisparse_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(hisparse_${name} PUBLIC ${ARG_DEPS})
endfunction()

# hisparse_test(<name> SRCS … DEPS … [LABELS …] [ARGS …]): a GoogleTest program run as one CTest test.
# HISPARSE_TEST_DATA names tests/ at run time, so that no absolute path is compiled in. Labels: `asan` and `tsan` put it
# into the targets asan_tests and tsan_tests (scripts/test.sh runs those under the sanitizers), `model` says that it
# needs the SmolLM2 file.
function(hisparse_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SRCS;DEPS;LABELS;ARGS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  add_executable(${name} ${ARG_SRCS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
    ENVIRONMENT "HISPARSE_TEST_DATA=${PROJECT_SOURCE_DIR}/tests")
  foreach(sanitizer asan tsan)
    if(sanitizer IN_LIST ARG_LABELS)
      add_dependencies(${sanitizer}_tests ${name})
    endif()
  endforeach()
endfunction()

# hisparse_fuzz(<name> SRCS … DEPS …): a libFuzzer program; its corpus is tests/fuzz/corpus/<name>.
function(hisparse_fuzz name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers ${name})
endfunction()

# hisparse_bench(<name> SRCS … DEPS … SMOKE <filter>): a Google Benchmark program, <name>_bench. CTest runs the cases
# that match the filter once and for a moment, so that a program that no longer works shows; no time is judged.
function(hisparse_bench name)
  cmake_parse_arguments(ARG "" "SMOKE" "SRCS;DEPS" ${ARGN})
  add_executable(${name}_bench ${ARG_SRCS})
  target_include_directories(${name}_bench PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name}_bench PRIVATE hisparse_bench_support ${ARG_DEPS})
  add_dependencies(benchmarks ${name}_bench)
  add_test(NAME ${name}_bench_smoke
    COMMAND ${name}_bench --peak-passes=4 --benchmark_min_time=0.01 "--benchmark_filter=${ARG_SMOKE}")
  set_tests_properties(${name}_bench_smoke PROPERTIES TIMEOUT 120 LABELS bench SKIP_RETURN_CODE 77
    ENVIRONMENT "HISPARSE_TEST_DATA=${PROJECT_SOURCE_DIR}/tests")
endfunction()
