# The C++ in README.md and docs/ is compiled and run by the tests: each block that is marked as an
# example (tools/extract_examples.py says how) becomes a program of that name and a test docs.<name>.
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
foreach(name IN LISTS doc_examples)
  add_executable(docs_${name} ${doc_examples_dir}/${name}.cpp)
  set_target_properties(docs_${name} PROPERTIES OUTPUT_NAME ${name}
                        RUNTIME_OUTPUT_DIRECTORY ${doc_examples_dir}/bin)
  target_link_libraries(docs_${name} PRIVATE Strata::strata strata_warnings)
  # Conversions that a reader would not look at twice are no fault in an example.
  target_compile_options(docs_${name} PRIVATE -Wno-conversion)
  add_test(NAME docs.${name} COMMAND docs_${name})
  set_tests_properties(docs.${name} PROPERTIES LABELS docs TIMEOUT 60)
endforeach()
