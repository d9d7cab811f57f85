// The reduction loops for x86-64 with AVX-512; the build adds the flags.
#if defined(__AVX512BW__)
#define STRATA_REDUCE_LOOPS kReduceLoopsAvx512
#define STRATA_REDUCE_NAME "avx512"
#include "comm/reduce_loops.inc"
#endif
