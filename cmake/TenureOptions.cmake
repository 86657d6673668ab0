# Language level, warnings and the three ways to build: plain, with sanitizers, with fuzzers.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

set(TENURE_SANITIZE "" CACHE STRING "Comma-separated sanitizers, as -fsanitize takes them; empty for none")
option(TENURE_FUZZ "Build the fuzz targets (clang only) instead of tests and benchmarks" OFF)
option(TENURE_BENCHMARKS "Build the benchmarks" OFF)
set(TENURE_TEST_LAYERS "" CACHE STRING "Layers whose tests are built; empty for all")

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
                    -Wold-style-cast -Woverloaded-virtual -Werror -fno-omit-frame-pointer)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these inside inlined library code when sanitizers or -Og change the flow.
  add_compile_options(-Wno-maybe-uninitialized -Wno-restrict)
else()
  # The lock annotations of base/mutex.h; the fuzz-smoke build compiles every library with clang.
  add_compile_options(-Wthread-safety)
endif()
if(TENURE_SANITIZE)
  add_compile_options(-fsanitize=${TENURE_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TENURE_SANITIZE})
endif()
if(TENURE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "TENURE_FUZZ needs clang (libFuzzer); CMAKE_CXX_COMPILER is ${CMAKE_CXX_COMPILER}")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
