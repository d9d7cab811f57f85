// The reduction loops for any CPU.
#define STRATA_REDUCE_LOOPS kReduceLoopsPlain
#define STRATA_REDUCE_NAME "plain"
#include "comm/reduce_loops.inc"
