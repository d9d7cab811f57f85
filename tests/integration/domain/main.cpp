#include <cstdlib>

#include "support/node_main.hpp"

int main(int argc, char** argv) {
  // Chip programs are looked for and kept in the build folder alone, by worker processes too.
  ::setenv("STRATA_CACHE", STRATA_TEST_CHIP_CACHE, 1);
  return strata::test::node_test_main(argc, argv);
}
