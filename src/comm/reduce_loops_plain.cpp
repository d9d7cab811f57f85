// The reduction loops for any CPU.
#define STRATA_REDUCE_LOOPS reduce_loops_plain
#define STRATA_REDUCE_NAME "plain"
#include "comm/reduce_loops.inc"
