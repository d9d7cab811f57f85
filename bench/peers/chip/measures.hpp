// What the program `chip` can measure of chip programs.
//
//   chip MEASURE THREADS [BUDGET_MS]
//
//   independent, chain    empty vector kernels, each with a tensor, in one run; ns per task
//   submission            what the orchestration needs to submit a task of two tensors, while none
//                         of them can begin; ns per task
//   mixed                 independent empty kernels on the three lanes of a cluster
//   spmd, spmd-together   one task of 24 blocks after the other; per task
//   replay                the independent tasks as a recorded graph
//   matmul:N              blocked product of 500 tasks of NxNxN float32: time over the same kernels
//                         called from a plain loop on one thread, and from OpenMP on THREADS
//   attention:N           paged attention with N keys a block, measured in the same way
//   run                   a run of one task on a chip of its own process, warm; and the first one
//   memory                private memory of a chip worker of which all 72 cores have run
//   close                 the close of 8 such chips
//   load                  a chip program file, warm: read, load, unload
//
// Thread safety: used by the main thread only.
#pragma once

#include <string_view>

#include "figures.hpp"

namespace strata::bench {

// tasks.cpp
Values measure_independent(unsigned threads, double budget_ns);
Values measure_chain(unsigned threads, double budget_ns);
Values measure_submission(unsigned threads, double budget_ns);
Values measure_mixed(unsigned threads, double budget_ns);
Values measure_spmd(unsigned threads, bool together, double budget_ns);
Values measure_replay(unsigned threads, double budget_ns);

// compute.cpp
Values measure_matmul(unsigned threads, int size, double budget_ns);
Values measure_attention(unsigned threads, int block, double budget_ns);

// life.cpp
Values measure_run(double budget_ns);
Values measure_memory();
Values measure_close(double budget_ns);
Values measure_load(double budget_ns);

}  // namespace strata::bench
