# How everything in this repository is compiled: optimisation levels, warnings, sanitizers, where
# programs go. When Strata is a part of another project only the warnings target is defined.

# Warnings for our own code; linked PRIVATE, so users of the library never see them.
# -Wsign-conversion is left out: it costs a cast per index and has found nothing that the sanitizers
# do not.
add_library(strata_warnings INTERFACE)
target_compile_options(
  strata_warnings
  INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
            # g++ 12 sees overlapping copies in std::string's operator+ where there are none
            # (GCC bug 105651).
            $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
            $<$<BOOL:${STRATA_WERROR}>:-Werror>)

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Programs for users lie in bin/; test programs are put elsewhere by tests/CMakeLists.txt.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Line tables in release builds: profiles and crash reports are readable, speed is the same.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g1 -DNDEBUG")

if(STRATA_SANITIZE)
  add_compile_options(-fsanitize=${STRATA_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${STRATA_SANITIZE})
  if(STRATA_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ warns about every atomic_thread_fence, which this sanitizer does not model.
    add_compile_options(-Wno-error=tsan)
  endif()
endif()

find_program(STRATA_CCACHE ccache)
if(STRATA_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${STRATA_CCACHE})
endif()
