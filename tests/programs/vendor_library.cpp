// What vendors' libraries are like: this one keeps state of the process that loaded it, watches for
// fork, and refuses to work in a process that is a copy of another.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "strata/worker_task.hpp"

static pid_t g_owner = 0;
static int g_forked = 0;

__attribute__((constructor)) static void load() {
  g_owner = getpid();
  pthread_atfork(nullptr, nullptr, [] { g_forked = 1; });
}

/// Ends the process unless it is the one that loaded the library. Returns the process's id.
extern "C" __attribute__((visibility("default"))) int vendor_work() {
  if (g_forked != 0 || getpid() != g_owner) {
    fprintf(stderr, "vendor: this process is a copy of %d\n", static_cast<int>(g_owner));
    abort();
  }
  return getpid();
}

STRATA_WORKER_FUNCTION(vendor_task) { task.set_value(std::to_string(vendor_work())); }
STRATA_WORKER_FUNCTION(vendor_setup) { vendor_work(); }
