// The reduction loops for x86-64 with AVX2 and F16C; the build adds the flags.
#if defined(__AVX2__)
#define STRATA_REDUCE_LOOPS kReduceLoopsAvx2
#define STRATA_REDUCE_NAME "avx2"
#include "comm/reduce_loops.inc"
#endif
