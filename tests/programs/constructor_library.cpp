// A library whose constructor does not end well. STRATA_TEST_CONSTRUCTOR says how.
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

extern "C" {

__attribute__((noinline, visibility("default"))) void strata_test_crash_in_constructor(
    volatile int* at) {
  *at = 1;  // NOLINT: the point of it.
}

__attribute__((visibility("default"))) void never_reached(void*) {}
}

__attribute__((constructor)) static void constructor() {
#if STRATA_TEST_CONSTRUCTOR_HANGS
  if (const char* at = getenv("STRATA_TEST_FLAG_AT"); at != nullptr) {
    if (auto* flag = reinterpret_cast<int32_t*>(strtoull(at, nullptr, 10)); flag != nullptr) {
      __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    }
  }
  while (true) {
    timespec day{86'400, 0};
    nanosleep(&day, nullptr);
  }
#else
  volatile int* volatile nowhere = nullptr;
  strata_test_crash_in_constructor(nowhere);
#endif
}
