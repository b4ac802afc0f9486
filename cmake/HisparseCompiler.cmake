# Flags that hold for every target. Kernel files add their own ISA flags (see src/device/cpu).

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# No -DNDEBUG: assertions of libraries stay on. The sanitizer presets choose their own level.
if(NOT HISPARSE_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
endif()

# The whole binary must start on any x86-64-v2 machine.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  add_compile_options(-march=x86-64-v2)
endif()
add_compile_options(-Wall -Wextra -Werror)

# A clone in another folder must hit the same ccache entries: no absolute source path may reach an
# object file.
add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}=. -ffile-prefix-map=${CMAKE_BINARY_DIR}=.)
find_program(HISPARSE_CCACHE ccache)
if(HISPARSE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${HISPARSE_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

if(HISPARSE_SANITIZE)
  add_compile_options(-fsanitize=${HISPARSE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HISPARSE_SANITIZE})
endif()
if(HISPARSE_BUILD_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(HISPARSE_LLD NAMES ld.lld-16)
if(HISPARSE_LLD AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_link_options(-fuse-ld=${HISPARSE_LLD})
endif()

# For files of vector kernels, beside their instruction-set flags: products and sums are fused within
# one expression (g++ spells that `fast`), and a square root need not set errno.
set(HISPARSE_KERNEL_OPTIONS
  "-ffp-contract=$<IF:$<CXX_COMPILER_ID:Clang>,on,fast>;-fno-math-errno")
