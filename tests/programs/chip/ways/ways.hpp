// What the chip program `ways` does, by the number that it is called with.
//
// Thread safety: constants.
#pragma once

#include <cstdint>

namespace strata::test {

enum class Way : std::int64_t {
  nothing,              ///< Submits no task.
  increment,            ///< Adds 1 to each element of x.
  add,                  ///< Adds the argument to each element of x.
  throws,               ///< A kernel throws.
  crash_segv,           ///< A kernel writes to null, ...
  crash_fpe,            ///< ... divides by zero, ...
  crash_bus,            ///< ... reads behind the end of a file.
  crash_orchestration,  ///< The orchestration writes to null.
  wait_for_flag,        ///< A kernel waits for a flag that nobody sets.
  spin,                 ///< A kernel never ends, whatever is asked.
  hold,                 ///< A kernel sets x[0] and waits until x[1] is set, or it is cancelled.
  fail,                 ///< The orchestration gives up, with the argument as its code.
  orchestration_throws,
  misuse,  ///< A kernel asks for a tensor that it has not.
  logs,    ///< The orchestration and a kernel write to the log.
  unknown_kernel,
  wrong_core,
  too_many_blocks,
  all_cores,  ///< Every core takes part in one task that meets at a barrier.
  geometry,   ///< x = clusters, AICs, AIVs.
  cpus,       ///< x[block] = the CPUs that the block's thread may run on; first of them at
              ///< [8 + block].
  allocate,   ///< A tensor of as many bytes as the argument says, on the heap.
  not_recordable,
  exit_in_kernel,  ///< A kernel calls exit(argument), ...
  exit_in_orchestration,
  leave_in_kernel,   ///< ... or _exit(7).
  loop,              ///< The orchestration sets x[0] and never ends, whatever is asked.
  loop_for_a_while,  ///< It loops until it is cancelled.
};

}  // namespace strata::test
