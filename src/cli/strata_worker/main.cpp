// strata-worker: the program that worker processes are, unless they are the user's own.
//
// A Worker starts it; it is not for use by hand.
#include <cstdio>

#include "node/worker_process.hpp"

int main() {
  if (strata::node::is_worker_process()) strata::node::worker_process_main();
  std::fputs(
      "strata-worker: this is the program of Strata's worker processes. A strata::Worker starts it;"
      " it does nothing when started by hand.\n",
      stderr);
  return 2;
}
