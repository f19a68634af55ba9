# Layers and programs from folders. Sources are globbed: a new file touches no CMake file.

# braid_layer(NAME [DIR dir] [SERIAL] [LOCK name] [TIMEOUT s] [DEPENDS layer...] [LIBS target...]
#             [PLAIN stem...])
#   dir/**/*.cc but *_test.cc and *_main.cc -> library braid_NAME (dir defaults to NAME)
#   dir/**/*_test.cc                        -> program NAME_test, each test a test of ctest
#   dir/*_test.sh                           -> a test NAME:script each; exit code 77 means skipped
# TIMEOUT: of each test, 300 without it.
# SERIAL: while one of its tests runs, no other test does; LOCK: no other one with the same lock.
# PLAIN: STEM.cc and STEM_test.cc also make a program of their own without sanitizers, which would
# stand in the way of what they are about (locked memory, the heap's settings). Their test is not
# part of NAME_test.
# A layer whose folder is missing or empty has no code; it still passes its dependencies on.
function(braid_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "DIR;LOCK;TIMEOUT" "DEPENDS;LIBS;PLAIN")
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

  set(libs ${arg_LIBS})
  foreach(layer IN LISTS arg_DEPENDS)
    if(TARGET braid_${layer})
      list(APPEND libs braid_${layer})
    endif()
  endforeach()
  if(sources)
    add_library(braid_${name} STATIC ${sources})
    target_link_libraries(braid_${name} PUBLIC ${libs})
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
  set(properties TIMEOUT ${timeout_s} LABELS ${name} RUN_SERIAL ${arg_SERIAL}
                 ENVIRONMENT BRAID_BIN_DIR=${BRAID_BIN_DIR})
  if(arg_LOCK)
    list(APPEND properties RESOURCE_LOCK ${arg_LOCK})
  endif()
  file(GLOB scripts CONFIGURE_DEPENDS ${dir}/*_test.sh)
  foreach(script IN LISTS scripts)
    get_filename_component(test ${script} NAME_WE)
    add_test(NAME ${name}:${test} COMMAND ${script} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name}:${test} PROPERTIES ${properties} SKIP_RETURN_CODE 77)
  endforeach()
  set(programs)
  if(tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE braid_${name} GTest::gtest_main GTest::gmock)
    # Test bodies run once; optimized, one takes the compiler twice as long under the sanitizers.
    target_compile_options(${name}_test PRIVATE -O0)
    list(APPEND programs ${name}_test)
  endif()
  foreach(stem IN LISTS arg_PLAIN)
    get_filename_component(program ${stem}_plain_test NAME)
    add_executable(${program} ${dir}/${stem}.cc ${dir}/${stem}_test.cc)
    target_compile_options(${program} PRIVATE -fno-sanitize=all)
    target_link_options(${program} PRIVATE -fno-sanitize=all)
    target_link_libraries(${program} PRIVATE fmt::fmt GTest::gtest_main)
    list(APPEND programs ${program})
  endforeach()
  foreach(program IN LISTS programs)
    # Listed when ctest starts, not after each link; a test that was not built is reported as such.
    gtest_discover_tests(${program} TEST_PREFIX ${name}: DISCOVERY_MODE PRE_TEST
                         DISCOVERY_TIMEOUT 60 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                         PROPERTIES ${properties})
  endforeach()
endfunction()

# braid_program(NAME SOURCE file LAYERS layer...): one program; skipped while its source is missing.
function(braid_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SOURCE" "LAYERS")
  file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${arg_SOURCE})
  if(NOT found)
    return()
  endif()
  add_executable(${name} ${found})
  foreach(layer IN LISTS arg_LAYERS)
    if(TARGET braid_${layer})
      target_link_libraries(${name} PRIVATE braid_${layer})
    endif()
  endforeach()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${BRAID_BIN_DIR})
endfunction()
