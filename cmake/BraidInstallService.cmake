# The daemon as a service: its systemd unit, and an example of its configuration, which is put where
# no update overwrites what an administrator has made of it.
include(GNUInstallDirs)
set(BRAID_UNIT_DIR lib/systemd/system CACHE STRING "Where units go, below the prefix or absolute")

# It names the program and the documents where they are installed, which is known only then
# (`cmake --install --prefix`); as they will be found, so without DESTDIR. Written at once to its
# place: several installations of one build may be under way.
install(CODE "
set(BRAID_DAEMON_DIR \"${CMAKE_INSTALL_BINDIR}\")
set(BRAID_DOC_DIR \"${CMAKE_INSTALL_DOCDIR}\")
set(unit \"${BRAID_UNIT_DIR}/braidd.service\")
foreach(path BRAID_DAEMON_DIR BRAID_DOC_DIR unit)
  cmake_path(ABSOLUTE_PATH \${path} BASE_DIRECTORY \"\${CMAKE_INSTALL_PREFIX}/\" NORMALIZE)
endforeach()
message(STATUS \"Installing: \$ENV{DESTDIR}\${unit}\")
configure_file(\"${CMAKE_SOURCE_DIR}/packaging/systemd/braidd.service.in\"
               \"\$ENV{DESTDIR}\${unit}\" @ONLY
               FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${unit}\")
" COMPONENT service)
install(FILES packaging/braid.toml DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT service)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT service
        FILES_MATCHING PATTERN "*.md")
# One beside the other: `braid` becomes `braidd` for some of its verbs (cli/braidd_parts.h).
install(TARGETS braid braidd RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT service)
