# Everything comes from the distribution's packages (`./run setup`).

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
# Its headers alone, in one source (cli/config/toml.cc).
find_path(BRAID_TOMLPLUSPLUS toml++/toml.h REQUIRED)
pkg_check_modules(uring REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(fuse3 REQUIRED IMPORTED_TARGET fuse3)
pkg_check_modules(httplib REQUIRED IMPORTED_TARGET cpp-httplib)

if(BRAID_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(BRAID_BENCH)
  find_package(benchmark REQUIRED)
endif()
