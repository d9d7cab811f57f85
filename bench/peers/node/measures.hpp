// What the program `node` can measure of a strata::Worker.
//
//   node MEASURE WORKERS [BUDGET_MS]
//
//   start:chips, start:subs    from nothing to all ready, and close
//   start-large:chips          the same in a program with 1 GiB resident
//   one                        a run of one task, an empty run
//   independent:chips          empty tasks for any chip; -tensor: each with a tensor of its own
//   chain:chips                each task depends on the one before; they take turns on the chips
//   idle                       CPU time of the whole tree over 10 s; a burst before and after
//   memory                     of an idle chip worker, and of the tree
//   bring-up                   the first domain over all chips
//   create-domain              a later one
//   collective:BYTES           all_reduce over all chips, in windows: a run of one, a task, a call
//                              within a task that runs on all chips
//   dump:own, dump:outside     a report of workers with 20 threads each, with all stacks
//   death:child                from SIGKILL of a worker to the error at the caller
//   death:root                 from SIGKILL of the owner to the end of the last worker
//
// With ":one-cpu" at its end a measure is bound to one CPU, workers included.
//
// Thread safety: used by the main thread only.
#pragma once

#include <string>
#include <string_view>

#include "figures.hpp"
#include "strata/worker.hpp"

namespace strata::bench {

/// A Worker with that many chips or subs, not initialised; it logs nothing.
WorkerOptions options_for(std::string_view kind, unsigned workers);
/// The callable that does nothing.
Callable empty_task();

// speed.cpp
Values measure_one(unsigned workers, double budget_ns);
Values measure_independent(unsigned workers, bool with_tensor, double budget_ns);
Values measure_chain(unsigned workers, double budget_ns);

// stacks.cpp
Values measure_dump(std::string_view who, unsigned workers, double budget_ns);

// domains.cpp
Values measure_bring_up(unsigned workers, double budget_ns);
Values measure_create_domain(unsigned workers, double budget_ns);

// collectives.cpp
Values measure_collective(std::size_t bytes, unsigned ranks, double budget_ns);

// life.cpp
Values measure_start(std::string_view kind, unsigned workers, double budget_ns);
Values measure_idle(unsigned workers);
Values measure_memory(unsigned workers);
Values measure_death_of_child(unsigned workers, double budget_ns);
Values measure_death_of_root(unsigned workers, double budget_ns);
/// The program that measure_death_of_root starts: says by a byte on standard output that its
/// workers are ready, and waits to be killed.
[[noreturn]] void be_a_root(unsigned workers);

}  // namespace strata::bench
