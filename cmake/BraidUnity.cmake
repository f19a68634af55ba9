# Several sources of a folder in one compilation: what they include is read once. A folder's files
# stand together, so that a new file moves no other folder's, and a compilation is simulated code or
# is not (tests/lint/globals.py).
#
# Names that a file keeps to itself are therefore defined once in its layer, and once in the tests
# of its layer; `./run lint` says so of all files at once (tests/lint/one_unit.py). What it cannot
# say: a neighbour's overload may be chosen, and a missing include be a neighbour's. The presets
# `dev` and `dev-clang` compile each file alone.

set(BRAID_TOGETHER 1 CACHE STRING "Sources of a folder in one compilation, at most; 1: none")

# braid_unity(TARGET CHEAP SOURCE...): where CHEAP, what is read costs more than what is made of it:
# three times as many together.
function(braid_unity target cheap)
  if(BRAID_TOGETHER LESS_EQUAL 1)
    return()
  endif()
  set(together ${BRAID_TOGETHER})
  if(cheap AND together LESS 24)
    math(EXPR together "3 * ${together}")
  endif()
  foreach(source IN LISTS ARGN)
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
    string(MAKE_C_IDENTIFIER ${folder} folder)
    if(NOT DEFINED in_${folder})
      set(in_${folder} 0)
    endif()
    math(EXPR part "${in_${folder}} / ${together}")
    math(EXPR in_${folder} "${in_${folder}} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${part})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # A class of a file's own in a coroutine of it: g++ takes the file for a header.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  else()
    # A local name may be another file's own.
    target_compile_options(${target} PRIVATE -Wno-shadow)
  endif()
endfunction()
