// strata-worker: the program that worker processes are, unless they are the user's own.
//
// A Worker starts it; it is not for use by hand.
#include <cstdio>

#include "node/janitor.hpp"
#include "node/worker_process.hpp"

int main(int argc, char** argv) {
  if (strata::node::is_worker_process()) strata::node::worker_process_main();
  if (strata::node::is_janitor(argc, argv)) return strata::node::janitor_main(argv);
  std::fputs(
      "strata-worker: this is the program of Strata's worker processes. A strata::Worker starts it;"
      " it does nothing when started by hand.\n",
      stderr);
  return 2;
}
