// Setup functions of worker processes. Part of libstrata_test_tasks.so.
//
// setup_as_told does what the file named by STRATA_TEST_SETUP says, one word and perhaps a number,
// and nothing where there is no such file; so a test can change its mind between two starts.
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include "strata/worker_task.hpp"
#include "task_names.hpp"

extern "C" void strata_test_null_write(volatile int* at);
extern "C" int strata_test_overflow(int depth);
extern "C" void strata_test_abort();

STRATA_WORKER_FUNCTION(setup_nothing) {}

STRATA_WORKER_FUNCTION(setup_as_told) {
  const char* path = std::getenv("STRATA_TEST_SETUP");
  if (path == nullptr) return;
  std::ifstream file(path);
  std::string what;
  long number = 0;
  if (!(file >> what)) return;
  file >> number;
  if (what == "throw") {
    throw std::runtime_error(strata::test::text_of(static_cast<std::size_t>(number)));
  }
  if (what == "exit") ::_exit(static_cast<int>(number));
  if (what == "segfault") strata_test_null_write(nullptr);
  if (what == "overflow" && strata_test_overflow(0) == 42) return;
  if (what == "abort") strata_test_abort();
  if (what == "nap") {
    timespec left{.tv_sec = 0, .tv_nsec = number * 1'000'000};
    ::nanosleep(&left, nullptr);
    return;
  }
  if (what == "sleep") {
    while (true) {
      timespec day{.tv_sec = 86'400, .tv_nsec = 0};
      ::nanosleep(&day, nullptr);
    }
  }
  throw std::runtime_error("setup_as_told does not know '" + what + "'");
}
