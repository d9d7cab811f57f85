// main() of the test programs that own Workers. They are programs like any user's: worker processes
// may be new starts of them.
//
// Thread safety: called once.
#pragma once

#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

#include "strata/process_scope.hpp"
#include "support/marked_processes.hpp"

namespace strata::test {

/// Sanitizers leave fatal signals alone in what this process starts: the tests are about what
/// Strata does with them.
inline void leave_signals_to_strata() {
  const auto add = [](const char* variable) {
    const char* old = std::getenv(variable);
    std::string value = old == nullptr ? "" : std::string(old) + ":";
    value +=
        "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0:"
        "use_sigaltstack=0:allow_user_segv_handler=1";
    ::setenv(variable, value.c_str(), 1);
  };
  add("ASAN_OPTIONS");
  add("UBSAN_OPTIONS");
  add("TSAN_OPTIONS");
}

inline int node_test_main(int argc, char** argv) {
  const ProcessScope scope(argc, argv);
  leave_signals_to_strata();
  mark_children();
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace strata::test
