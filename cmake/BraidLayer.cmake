# Layers and programs from folders. Sources are globbed: a new file touches no CMake file.

include(BraidUnity)

# Compile time, half of what `./run test` takes: what is not in the data path is not optimized, nor
# are test bodies, which run once.
set(braid_unoptimized $<$<CONFIG:Debug>:-O0>)
set(braid_test_body -O0)

# What most tests read anyway, read once for all programs: a quarter of their compile time with g++.
# With clang each file stands alone, so that `./run lint` sees an include that is missing.
set(braid_test_headers
    <algorithm> <array> <atomic> <coroutine> <cstdint> <cstring> <deque> <functional> <map> <memory>
    <mutex> <optional> <span> <string> <string_view> <thread> <utility> <variant> <vector>
    <fmt/format.h> <gtest/gtest.h>)

# braid_layer(NAME [UNOPTIMIZED] [DIR dir] [LOCK name] [LANES n] [FIRST n] [TIMEOUT s]
#             [TOGETHER n [ALONE regex]] [DEPENDS layer...] [LIBS target...] [PLAIN stem...])
#   dir/**/*.cc but *_test.cc and *_main.cc -> library braid_NAME (dir defaults to NAME)
#   dir/**/*_test.cc                        -> program NAME_test, each test a test of ctest; or,
#                                              with TOGETHER, up to n in one process, but those
#                                              whose suite matches ALONE
#   dir/*_test.sh                           -> a test NAME:script each; exit code 77 means skipped
# TIMEOUT: of each process, 300 without it; four times that under the thread sanitizer.
# LOCK: while one of its tests runs, no other one with the same lock does; with LANES, n scripts at
#   a time, which wait as much as they compute. PROCESSORS are in halves: ./run test has one more
#   than there are, so that such a script runs beside as many others as there are cores; who has
#   a lock alone takes one and a half.
# FIRST: those with the largest n begin first, as the longest chain would be last alone.
# UNOPTIMIZED: nothing of it is in the data path. A Debug build leaves it so: optimized, it takes
#   the compiler twice to three times as long under the sanitizers.
# PLAIN: STEM.cc and STEM_test.cc also make a program of their own without sanitizers, which would
#   stand in the way of what they are about (locked memory, the heap's settings). Their test is not
#   part of NAME_test.
# A folder without sources, tests/system say, has no code; it still passes its dependencies on.
function(braid_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "UNOPTIMIZED" "DIR;LOCK;LANES;FIRST;TIMEOUT;TOGETHER;ALONE"
                        "DEPENDS;LIBS;PLAIN")
  if(NOT arg_DIR)
    set(arg_DIR ${name})
  endif()
  set(dir ${CMAKE_SOURCE_DIR}/${arg_DIR})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|main)\\.cc$")
  foreach(stem IN LISTS arg_PLAIN)
    list(REMOVE_ITEM tests ${dir}/${stem}_test.cc)
  endforeach()

  set(libs ${arg_DEPENDS})
  list(TRANSFORM libs PREPEND braid_)
  list(APPEND libs ${arg_LIBS})
  if(sources)
    add_library(braid_${name} STATIC ${sources})
    target_link_libraries(braid_${name} PUBLIC ${libs})
    if(arg_UNOPTIMIZED)
      target_compile_options(braid_${name} PRIVATE ${braid_unoptimized})
    endif()
    braid_unity(braid_${name} ${arg_UNOPTIMIZED} ${sources})
    set_target_properties(braid_${name} PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${BRAID_LIB_DIR})
  else()
    add_library(braid_${name} INTERFACE)
    target_link_libraries(braid_${name} INTERFACE ${libs})
  endif()

  if(NOT BRAID_TESTS)
    return()
  endif()
  set(timeout_s 300)
  if(arg_TIMEOUT)
    set(timeout_s ${arg_TIMEOUT})
  endif()
  if(BRAID_SANITIZE MATCHES "thread")
    math(EXPR timeout_s "4 * ${timeout_s}")
  endif()
  set(halves 2)
  if(arg_LOCK AND NOT arg_LANES)
    set(halves 3)
  endif()
  set(properties TIMEOUT ${timeout_s} LABELS ${name} PROCESSORS ${halves}
                 ENVIRONMENT BRAID_BIN_DIR=${BRAID_BIN_DIR})
  if(arg_FIRST)
    list(APPEND properties COST ${arg_FIRST})
  endif()
  if(arg_LOCK)
    list(APPEND properties RESOURCE_LOCK ${arg_LOCK})
  endif()
  file(GLOB scripts CONFIGURE_DEPENDS ${dir}/*_test.sh)
  set(lane 0)
  foreach(script IN LISTS scripts)
    get_filename_component(test ${script} NAME_WE)
    add_test(NAME ${name}:${test} COMMAND ${script} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name}:${test} PROPERTIES ${properties} SKIP_RETURN_CODE 77)
    if(arg_LANES)
      set_tests_properties(${name}:${test} PROPERTIES RESOURCE_LOCK ${arg_LOCK}_${lane}
                           PROCESSORS 1)
      math(EXPR lane "(${lane} + 1) % ${arg_LANES}")
    endif()
  endforeach()
  set(programs)
  if(tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE braid_${name} GTest::gtest_main GTest::gmock)
    target_compile_options(${name}_test PRIVATE ${braid_test_body})
    braid_unity(${name}_test FALSE ${tests})
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND TARGET base_test AND NOT name STREQUAL "base")
      target_precompile_headers(${name}_test REUSE_FROM base_test)
    elseif(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      target_precompile_headers(${name}_test PRIVATE ${braid_test_headers})
    endif()
    list(APPEND programs ${name}_test)
  endif()
  foreach(stem IN LISTS arg_PLAIN)
    get_filename_component(program ${stem}_plain_test NAME)
    add_executable(${program} ${dir}/${stem}.cc ${dir}/${stem}_test.cc)
    target_compile_options(${program} PRIVATE -fno-sanitize=all -U__SANITIZE_ADDRESS__)
    target_link_options(${program} PRIVATE -fno-sanitize=all)
    target_link_libraries(${program} PRIVATE fmt::fmt GTest::gtest_main)
    list(APPEND programs ${program})
  endforeach()
  foreach(program IN LISTS programs)
    if(arg_TOGETHER)
      braid_suites(${program} ${name}: ${arg_TOGETHER} "${arg_ALONE}" "${properties}")
      continue()
    endif()
    # Listed when ctest starts, not after each link; a test that was not built is reported as such.
    gtest_discover_tests(${program} TEST_PREFIX ${name}: DISCOVERY_MODE PRE_TEST
                         DISCOVERY_TIMEOUT 60 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                         PROPERTIES ${properties})
  endforeach()
endfunction()

# braid_suites(PROGRAM PREFIX N ALONE PROPERTIES): tests of ctest are parts of suites, or several
# suites, N tests at most.
function(braid_suites program prefix at_most alone properties)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${program}_suites.cmake)
  file(GENERATE OUTPUT ${file} CONTENT "set(program $<TARGET_FILE:${program}>)
set(prefix ${prefix})
set(at_most ${at_most})
set(alone \"${alone}\")
set(folder ${CMAKE_SOURCE_DIR})
set(results ${CMAKE_BINARY_DIR}/Testing/suites)
set(properties ${properties})
include(${CMAKE_SOURCE_DIR}/cmake/BraidSuites.cmake)
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()

# braid_program(NAME [UNOPTIMIZED] SOURCE file LAYERS layer...): one program.
function(braid_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "UNOPTIMIZED" "SOURCE" "LAYERS")
  add_executable(${name} ${arg_SOURCE})
  list(TRANSFORM arg_LAYERS PREPEND braid_)
  target_link_libraries(${name} PRIVATE ${arg_LAYERS})
  if(arg_UNOPTIMIZED)
    target_compile_options(${name} PRIVATE ${braid_unoptimized})
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${BRAID_BIN_DIR})
endfunction()
