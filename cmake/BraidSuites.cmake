# Read by ctest when it starts, with `program`, `prefix`, `at_most`, `alone`, `folder`, `results`
# and `properties` set: the suites of a GoogleTest program as tests of ctest, at most `at_most`
# tests in one process: parts of a suite, or several suites, named by the first and the last of
# them. A suite whose name matches `alone` has a process for each test. What became of each test is
# in `results`, a file for each process; tests/results.py reads it. Starting a process under a
# sanitizer takes longer than most tests do. One suite, or one test of it:
# `build/PRESET/LAYER_test --gtest_filter=SUITE.*`.

execute_process(COMMAND ${program} --gtest_list_tests OUTPUT_VARIABLE listing
                ERROR_VARIABLE complaint RESULT_VARIABLE status TIMEOUT 60)
if(NOT status EQUAL 0)
  # Reported like a test that was not built.
  add_test(${prefix}NOT_BUILT ${program})
  message("${program} does not list its tests: ${status} ${complaint}")
  return()
endif()

# add_entry(NAME PARTS): tests of ctest for what is in `filter`.
macro(add_entry entry parts)
  string(REPLACE "/" "." file ${prefix}${entry})
  string(REPLACE ":" "." file ${file})
  foreach(part RANGE 1 ${parts})
    set(name ${prefix}${entry})
    if(${parts} GREATER 1)
      string(APPEND name ":${part}of${parts}")
    endif()
    math(EXPR index "${part} - 1")
    add_test(${name} ${program} "--gtest_filter=${filter}"
             --gtest_output=xml:${results}/${file}.${part}.xml)
    set_tests_properties(${name} PROPERTIES WORKING_DIRECTORY ${folder} ${properties}
                         ENVIRONMENT_MODIFICATION
                         "GTEST_TOTAL_SHARDS=set:${parts};GTEST_SHARD_INDEX=set:${index}")
  endforeach()
endmacro()

# add_held(): what is held, small suites that stand one after the other, in one process.
macro(add_held)
  if(held)
    list(GET held 0 first)
    list(GET held -1 last)
    list(TRANSFORM held APPEND ".*" OUTPUT_VARIABLE filters)
    list(JOIN filters ":" filter)
    if(first STREQUAL last)
      add_entry(${first} 1)
    else()
      add_entry(${first}..${last} 1)
    endif()
  endif()
  set(held)
  set(held_count 0)
endmacro()

# add_suite(SUITE COUNT)
macro(add_suite suite count)
  set(most ${at_most})
  if(alone AND "${suite}" MATCHES "${alone}")
    set(most 1)
  endif()
  math(EXPR together "${held_count} + ${count}")
  if(together GREATER at_most)
    add_held()
  endif()
  if(${count} GREATER most OR most EQUAL 1)
    math(EXPR parts "(${count} + ${most} - 1) / ${most}")
    set(filter "${suite}.*")
    add_entry(${suite} ${parts})
  else()
    list(APPEND held ${suite})
    math(EXPR held_count "${held_count} + ${count}")
  endif()
endmacro()

string(REGEX REPLACE "[ \t]*#[^\n]*" "" listing "${listing}")
string(REPLACE "\n" ";" listing "${listing}")
set(held)
set(held_count 0)
set(suite)
set(count 0)
foreach(line IN LISTS listing)
  if(line MATCHES "^([A-Za-z_0-9/]+)\\.$")
    set(next ${CMAKE_MATCH_1})
    if(count GREATER 0)
      add_suite(${suite} ${count})
    endif()
    set(suite ${next})
    set(count 0)
  elseif(line MATCHES "^  [^ ]" AND NOT line MATCHES "DISABLED_")
    math(EXPR count "${count} + 1")
  endif()
endforeach()
if(count GREATER 0)
  add_suite(${suite} ${count})
endif()
add_held()
