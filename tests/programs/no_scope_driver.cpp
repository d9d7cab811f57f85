// A program that wants workers of its own executable and has no ProcessScope. Prints what init()
// throws; were it ever entered anew by a worker process, it would print "entered again".
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <typeinfo>

#include "strata/error.hpp"
#include "strata/worker.hpp"

int main() {
  if (std::getenv("STRATA_WORKER_TOKEN") != nullptr) std::puts("entered again");
  try {
    strata::Worker worker({.subs = {{.count = 2, .program = strata::WorkerProgram::this_program}}});
    worker.init();
    std::puts("ready");
  } catch (const strata::InvalidState& error) {
    std::printf("invalid state: %s\n", error.what());
  } catch (const std::exception& error) {
    std::printf("%s: %s\n", typeid(error).name(), error.what());
  }
  return 0;
}
