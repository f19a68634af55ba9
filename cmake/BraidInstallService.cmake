# The daemon as a service: its systemd unit, and an example of its configuration, which is put where
# no update overwrites what an administrator has made of it.
include(GNUInstallDirs)
set(BRAID_UNIT_DIR lib/systemd/system CACHE STRING "Where units go, below the prefix or absolute")
set(BRAID_DOC_DIR ${CMAKE_INSTALL_FULL_DOCDIR})
set(BRAID_DAEMON_DIR ${CMAKE_INSTALL_FULL_BINDIR})
configure_file(packaging/systemd/braidd.service.in ${CMAKE_BINARY_DIR}/braidd.service @ONLY)

install(FILES ${CMAKE_BINARY_DIR}/braidd.service DESTINATION ${BRAID_UNIT_DIR} COMPONENT service)
install(FILES packaging/braid.toml DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT service)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT service
        FILES_MATCHING PATTERN "*.md")
# One beside the other: `braid` becomes `braidd` for some of its verbs (cli/braidd_parts.h).
install(TARGETS braid braidd RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT service)
