// Tasks that end their process. Part of libstrata_test_tasks.so. The functions that crash have C
// linkage and are never inlined, so that their names are in the stack.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "beside.hpp"
#include "strata/worker_task.hpp"
#include "task_begun.hpp"

using strata_test::begun;

extern "C" {
__attribute__((noinline)) void strata_test_null_write(volatile int* at) {
  *at = 1;  // NOLINT: the point of it.
}

__attribute__((noinline)) int strata_test_overflow(int depth) {
  volatile char room[4096];
  room[0] = static_cast<char>(depth);
  if (depth < 0) return room[0];
  return strata_test_overflow(depth + 1) + room[0];  // Not a tail call.
}

__attribute__((noinline)) void strata_test_abort() { std::abort(); }
}

STRATA_WORKER_FUNCTION(null_write) {
  begun(task);
  volatile int* volatile nowhere = nullptr;
  strata_test_null_write(nowhere);
}

STRATA_WORKER_FUNCTION(overflow) {
  begun(task);
  if (strata_test_overflow(0) == 42) throw std::runtime_error("can't be");
}

STRATA_WORKER_FUNCTION(abort_now) {
  begun(task);
  strata_test_abort();
}

STRATA_WORKER_FUNCTION(exit_now) {
  begun(task);
  std::_Exit(7);
}

/// Loads a library whose constructor writes to address zero.
STRATA_WORKER_FUNCTION(crash_in_library) {
  begun(task);
  ::dlopen(strata_test::beside("libstrata_test_constructor_crashes.so").c_str(), RTLD_NOW);
}
