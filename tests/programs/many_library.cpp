// A library of 4096 tasks, many_000 to many_fff: each returns its number.
#include <string>

#include "strata/worker_task.hpp"

#define STRATA_TEST_ONE(n) \
  STRATA_WORKER_FUNCTION(many_##n) { task.set_value(std::to_string(0x##n)); }
#define STRATA_TEST_16(n)                                                                         \
  STRATA_TEST_ONE(n##0)                                                                           \
  STRATA_TEST_ONE(n##1) STRATA_TEST_ONE(n##2) STRATA_TEST_ONE(n##3) STRATA_TEST_ONE(n##4)         \
      STRATA_TEST_ONE(n##5) STRATA_TEST_ONE(n##6) STRATA_TEST_ONE(n##7) STRATA_TEST_ONE(n##8)     \
          STRATA_TEST_ONE(n##9) STRATA_TEST_ONE(n##a) STRATA_TEST_ONE(n##b) STRATA_TEST_ONE(n##c) \
              STRATA_TEST_ONE(n##d) STRATA_TEST_ONE(n##e) STRATA_TEST_ONE(n##f)
#define STRATA_TEST_256(n)                                                                    \
  STRATA_TEST_16(n##0)                                                                        \
  STRATA_TEST_16(n##1) STRATA_TEST_16(n##2) STRATA_TEST_16(n##3) STRATA_TEST_16(n##4)         \
      STRATA_TEST_16(n##5) STRATA_TEST_16(n##6) STRATA_TEST_16(n##7) STRATA_TEST_16(n##8)     \
          STRATA_TEST_16(n##9) STRATA_TEST_16(n##a) STRATA_TEST_16(n##b) STRATA_TEST_16(n##c) \
              STRATA_TEST_16(n##d) STRATA_TEST_16(n##e) STRATA_TEST_16(n##f)

STRATA_TEST_256(0)
STRATA_TEST_256(1)
STRATA_TEST_256(2)
STRATA_TEST_256(3)
STRATA_TEST_256(4)
STRATA_TEST_256(5)
STRATA_TEST_256(6)
STRATA_TEST_256(7)
STRATA_TEST_256(8)
STRATA_TEST_256(9)
STRATA_TEST_256(a)
STRATA_TEST_256(b)
STRATA_TEST_256(c)
STRATA_TEST_256(d)
STRATA_TEST_256(e)
STRATA_TEST_256(f)
