# What programs use: libbraid.so with its header, fio's engine, and their installation.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Before 1.0 each minor version may differ: a program takes the library of that which it was built
# with, here by the soname and below by the version file. From 1.0 on the major one is enough.
add_library(libbraid SHARED capi/braid/braid.h)
add_library(Braid::braid ALIAS libbraid)
set_target_properties(libbraid PROPERTIES OUTPUT_NAME braid EXPORT_NAME braid LINKER_LANGUAGE CXX
                      VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                      LIBRARY_OUTPUT_DIRECTORY ${BRAID_LIB_DIR})
target_include_directories(libbraid INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/capi>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(libbraid PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,braid_capi>)
# Nothing is seen of it but what the script names.
set(script ${CMAKE_SOURCE_DIR}/capi/braid.map)
target_link_options(libbraid PRIVATE -Wl,--version-script=${script})
set_target_properties(libbraid PROPERTIES LINK_DEPENDS ${script})

install(TARGETS libbraid EXPORT BraidTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES capi/braid/braid.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/braid)
install(EXPORT BraidTargets NAMESPACE Braid:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Braid)
configure_package_config_file(cmake/BraidConfig.cmake.in BraidConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Braid)
write_basic_package_version_file(BraidConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/BraidConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/BraidConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Braid)
# Wherever it is installed, but for folders that were given by absolute paths.
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(BRAID_PC_PREFIX "\${pcfiledir}/${to_prefix}")
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(BRAID_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
endif()
foreach(dir LIBDIR INCLUDEDIR)
  set(BRAID_PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    set(BRAID_PC_${dir} "${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
configure_file(cmake/braid.pc.in braid.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/braid.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# --- fio's engine, against the headers of the fio that is installed (`./run setup` fetches them)

set(BRAID_FIO_SOURCE ${CMAKE_SOURCE_DIR}/build/fio CACHE PATH
    "Source of the fio that is installed, configured")
if(EXISTS ${BRAID_FIO_SOURCE}/fio.h AND EXISTS ${BRAID_FIO_SOURCE}/config-host.h)
  add_library(braid-fio MODULE capi/fio/engine.c)
  set_target_properties(braid-fio PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden
                        LIBRARY_OUTPUT_DIRECTORY ${BRAID_LIB_DIR}
                        BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN")
  # Its headers are system's, so that they need not know of our warnings.
  target_include_directories(braid-fio SYSTEM PRIVATE ${BRAID_FIO_SOURCE})
  target_compile_options(braid-fio PRIVATE -include ${BRAID_FIO_SOURCE}/config-host.h)
  target_link_libraries(braid-fio PRIVATE libbraid)
  install(TARGETS braid-fio LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
else()
  message(NOTICE "fio's engine (braid-fio.so) is left out: no configured source of fio in "
                 "${BRAID_FIO_SOURCE}; ./run setup fetches it")
endif()
