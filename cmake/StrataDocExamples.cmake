# The C++ in README.md and docs/ is compiled and run by the tests: each block that is marked as an
# example (tools/extract_examples.py says how) becomes a program of that name and a test docs.<name>.
# It is run in the folder that also has what is marked as a library, as lib<name>.so, and what is
# marked as a file, under its name.
file(GLOB_RECURSE doc_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md)
list(PREPEND doc_pages ${PROJECT_SOURCE_DIR}/README.md)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${doc_pages}
                                       ${PROJECT_SOURCE_DIR}/tools/extract_examples.py)

set(doc_examples_dir ${PROJECT_BINARY_DIR}/tests/docs)
execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/extract_examples.py
                        ${doc_examples_dir} ${doc_pages}
                OUTPUT_VARIABLE doc_examples OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" doc_examples "${doc_examples}")
add_custom_target(strata_doc_libraries)
add_dependencies(strata_doc_libraries strata_worker)
foreach(name IN LISTS doc_examples)
  if(name MATCHES "^library/(.+)$")
    set(target docs_library_${CMAKE_MATCH_1})
    # What it uses of Strata beyond headers it finds in the program that loads it.
    add_library(${target} MODULE ${doc_examples_dir}/${name}.cpp)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${CMAKE_MATCH_1}
                          LIBRARY_OUTPUT_DIRECTORY ${doc_examples_dir}/bin)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${target} PRIVATE strata_warnings)
    target_compile_options(${target} PRIVATE -Wno-conversion)
    add_dependencies(strata_doc_libraries ${target})
    continue()
  endif()
  add_executable(docs_${name} ${doc_examples_dir}/${name}.cpp)
  set_target_properties(docs_${name} PROPERTIES OUTPUT_NAME ${name}
                        RUNTIME_OUTPUT_DIRECTORY ${doc_examples_dir}/bin)
  target_link_libraries(docs_${name} PRIVATE Strata::strata strata_warnings)
  add_dependencies(docs_${name} strata_doc_libraries)
  # Conversions that a reader would not look at twice are no fault in an example.
  target_compile_options(docs_${name} PRIVATE -Wno-conversion)
  add_test(NAME docs.${name} COMMAND docs_${name} WORKING_DIRECTORY ${doc_examples_dir}/bin)
  # Some build chip programs.
  set_tests_properties(docs.${name} PROPERTIES LABELS docs TIMEOUT 120 ENVIRONMENT
                                               STRATA_CACHE=${PROJECT_BINARY_DIR}/chip_programs)
endforeach()
