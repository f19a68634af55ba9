# Language, warnings, sanitizers and tools, for every target of the project.

option(BRAID_TESTS "Build the tests" ON)
option(BRAID_BENCH "Build the benchmark program" ON)
option(BRAID_FUZZ "Build fuzz targets with libFuzzer (clang only)" OFF)
option(BRAID_ALL_CHECKS "Undefined behaviour: also the checks at each use of a pointer" OFF)
option(BRAID_CCACHE "Compile through ccache where it is installed" ON)
option(BRAID_LTO "Optimize when linking, which takes lld" OFF)
option(BRAID_HARDENED_STL "Check the preconditions of the standard library" OFF)
set(BRAID_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=")
set(BRAID_BIN_DIR ${CMAKE_BINARY_DIR}/bin CACHE PATH "Where programs are put")
set(BRAID_LIB_DIR ${CMAKE_BINARY_DIR}/lib CACHE PATH "Where libraries are put")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 17)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

include_directories(${CMAKE_SOURCE_DIR})
add_compile_definitions(_GNU_SOURCE)
add_compile_options(-Wall -Wextra -Werror
                    # All of g++'s -Wshadow objects to a constructor's parameter named as a member.
                    $<IF:$<CXX_COMPILER_ID:GNU>,-Wshadow=local,-Wshadow>
                    # Options are structs with defaults, given by designated initializers.
                    -Wno-missing-field-initializers
                    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
                    $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual>
                    $<$<COMPILE_LANGUAGE:CXX>:-Wold-style-cast>)

# Debug data and __FILE__ do not tell where the tree lies. ccache makes paths relative to the build
# folder, hence the second map.
file(RELATIVE_PATH to_root ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR})
add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -fmacro-prefix-map=${to_root}=)

if(BRAID_HARDENED_STL)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()

# What a program without this build's sanitizers has to load first to load a library of ours:
# LD_PRELOAD. Scripts read it in the cache.
set(BRAID_SANITIZER_RUNTIMES "")
if(BRAID_SANITIZE)
  add_compile_options(-fsanitize=${BRAID_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  if(BRAID_SANITIZE MATCHES "undefined")
    # Checks at each use of a pointer, a third of the compile time. Much of what they see ends a
    # program of the address sanitizer anyway; not a wrong alignment, nor a null that nothing uses.
    # The fuzz targets and the preset asan-ubsan-all have them. `vptr` wants a C++ runtime, in C
    # programs that load libbraid, too.
    set(unchecked null,alignment,object-size,vptr)
    if(BRAID_FUZZ)
      set(unchecked)
    elseif(BRAID_ALL_CHECKS)
      set(unchecked vptr)
    endif()
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      # It puts data before each function, which clang 14 cannot do for coroutines.
      list(APPEND unchecked function)
    else()
      list(APPEND unchecked pointer-overflow)
    endif()
    list(JOIN unchecked , unchecked)
    add_compile_options(-fno-sanitize=${unchecked})
  endif()
  add_link_options(-fsanitize=${BRAID_SANITIZE})
  if(BRAID_SANITIZE MATCHES "address")
    set(runtimes libasan.so libubsan.so)  # in this order
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      add_compile_definitions(__SANITIZE_ADDRESS__)  # as g++ does
      set(runtimes libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so)
    endif()
    foreach(runtime IN LISTS runtimes)
      execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${runtime}
                      OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE)
      list(APPEND files ${file})
    endforeach()
    list(JOIN files : BRAID_SANITIZER_RUNTIMES)
  endif()
  # A program at its place has nothing to relocate: of g++ it starts in 240 ms instead of 380, and
  # tests start some 400, and many of `braid`.
  if(BRAID_SANITIZE MATCHES "address" AND NOT BRAID_FUZZ)
    add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # The instrumentation hides initialisation from g++ 12: false alarms only.
    add_compile_options(-Wno-maybe-uninitialized)
    # It does not model fences; the accesses around ours are atomic, which is all that it needs.
    add_compile_options(-Wno-tsan)
  endif()
endif()

set(BRAID_SANITIZER_RUNTIMES "${BRAID_SANITIZER_RUNTIMES}" CACHE INTERNAL "LD_PRELOAD for fio")

if(BRAID_CCACHE)
  find_program(BRAID_CCACHE_PROGRAM ccache)
  if(BRAID_CCACHE_PROGRAM)
    # With paths relative to the tree, all worktrees of a machine share one cache. The sloppiness is
    # what ccache asks for beside precompiled headers; nothing of ours reads __TIME__ or __DATE__.
    set(launcher env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
                 CCACHE_SLOPPINESS=pch_defines,time_macros ${BRAID_CCACHE_PROGRAM})
    set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  endif()
endif()

find_program(BRAID_LLD ld.lld)
if(BRAID_LLD)
  add_link_options(-fuse-ld=lld)
  # What the compiler's jobs leave idle is nothing, and a test program need not be small: 1.4 s of
  # processor time a program for 2.2, and there are a hundred.
  add_link_options($<$<CONFIG:Debug>:-Wl,-O0,--threads=1>)
  # `braidd` has 4 MB of code and data, and 67 MB of lines for the debugger, which become 17.
  add_link_options($<$<CONFIG:Release>:-Wl,--compress-debug-sections=zlib>)
  # Only the libraries of what is left: `braid` starts in half of the time.
  add_link_options($<$<CONFIG:Release>:-Wl,--gc-sections,--as-needed>)
endif()

if(BRAID_LTO)
  # clang's is ThinLTO, which lld does on all processors; g++'s would need another linker.
  if(BRAID_LLD AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_AR
     AND CMAKE_CXX_COMPILER_RANLIB)
    set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
    # What programs share is compiled once for all of them, where it comes out the same.
    add_link_options(-Wl,--thinlto-cache-dir=${CMAKE_BINARY_DIR}/link-cache)
  else()
    message(WARNING "clang, ld.lld, llvm-ar and llvm-ranlib are not all there: built without "
                    "link-time optimization (requests take 7 % longer, and braid starts slower)")
  endif()
endif()
