# strata_add_chip_program(TARGET JSON program.json
#                         [OUTPUT FILE] [COMPILER COMMAND] [CHECK | SANITIZER address|thread])
#
# Builds a chip program whenever a file that went into it has changed. It is a part of the default
# build, and what depends on TARGET finds it there. Property STRATA_CHIP_PROGRAM of TARGET is its
# path: FILE, or TARGET.strata in the current binary folder. The compiler is that of the project.
#
# What was compiled before is kept in STRATA_CHIP_CACHE, by default chip_programs/ in the build tree.
function(strata_add_chip_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "CHECK" "JSON;OUTPUT;COMPILER;SANITIZER" "")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_JSON)
    message(FATAL_ERROR "strata_add_chip_program(${target} JSON program.json [OUTPUT FILE] "
                        "[COMPILER COMMAND] [CHECK | SANITIZER address|thread]): "
                        "can't be called with '${ARGN}'")
  endif()
  if(TARGET strata_cli)
    set(command strata_cli)
  elseif(TARGET Strata::strata-cli)
    set(command Strata::strata-cli)
  else()
    message(FATAL_ERROR "strata_add_chip_program(${target}) needs the command `strata`: "
                        "build Strata with STRATA_COMMAND=ON")
  endif()
  cmake_path(ABSOLUTE_PATH arg_JSON BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
  if(NOT arg_OUTPUT)
    set(arg_OUTPUT ${target}.strata)
  endif()
  cmake_path(ABSOLUTE_PATH arg_OUTPUT BASE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} NORMALIZE)
  if(NOT arg_COMPILER)
    set(arg_COMPILER ${CMAKE_CXX_COMPILER})
  endif()
  set(cache ${STRATA_CHIP_CACHE})
  if(NOT cache)
    set(cache ${CMAKE_BINARY_DIR}/chip_programs)
  endif()
  set(options --quiet --cache ${cache} --compiler ${arg_COMPILER})
  if(arg_CHECK)
    list(APPEND options --check)
  endif()
  if(arg_SANITIZER)
    list(APPEND options --sanitizer ${arg_SANITIZER})
  endif()
  set(depfile ${CMAKE_CURRENT_BINARY_DIR}/${target}.d)
  cmake_path(GET arg_OUTPUT FILENAME output_name)
  add_custom_command(
    OUTPUT ${arg_OUTPUT}
    COMMAND ${command} build ${arg_JSON} --output ${arg_OUTPUT} --depfile ${depfile} ${options}
    DEPENDS ${arg_JSON} ${command}
    DEPFILE ${depfile}
    COMMENT "Building chip program ${output_name}"
    VERBATIM)
  add_custom_target(${target} ALL DEPENDS ${arg_OUTPUT})
  set_target_properties(${target} PROPERTIES STRATA_CHIP_PROGRAM ${arg_OUTPUT})
endfunction()
