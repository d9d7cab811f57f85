# `cmake --install`: library, public headers, programs, a CMake package and a pkg-config file.
include(CMakePackageConfigHelpers)

set(strata_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Strata)

install(TARGETS strata EXPORT StrataTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# In the package it is Strata::strata-worker, so that $<TARGET_FILE:...> says where it is.
set_target_properties(strata_worker PROPERTIES EXPORT_NAME strata-worker)
install(TARGETS strata_worker EXPORT StrataTargets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET strata_cli)
  set_target_properties(strata_cli PROPERTIES EXPORT_NAME strata-cli)
  install(TARGETS strata_cli EXPORT StrataTargets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(EXPORT StrataTargets NAMESPACE Strata:: DESTINATION ${strata_package_dir})

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/StrataConfig.cmake.in ${PROJECT_BINARY_DIR}/StrataConfig.cmake
  INSTALL_DESTINATION ${strata_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/StrataConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/StrataConfig.cmake
              ${PROJECT_BINARY_DIR}/StrataConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/StrataChipProgram.cmake
        DESTINATION ${strata_package_dir})

# pkg-config finds the prefix from where the file lies, so that the tree can be moved; an absolute
# libdir or includedir is kept as it is.
foreach(dir IN ITEMS LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    set(STRATA_PC_${dir} "${CMAKE_INSTALL_${dir}}")
  else()
    set(STRATA_PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(STRATA_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
else()
  # From <prefix>/<libdir>/pkgconfig back to <prefix>.
  string(REGEX REPLACE "[^/]+" ".." up "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  set(STRATA_PC_PREFIX "\${pcfiledir}/${up}")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/strata.pc.in ${PROJECT_BINARY_DIR}/strata.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/strata.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
