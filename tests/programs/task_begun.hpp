// How a task tells that it has begun: tensor 0, where there is one of int32, gets the pid.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "strata/worker_task.hpp"

namespace strata_test {

inline void note(std::int32_t* flag, std::int32_t value) {
  std::atomic_ref<std::int32_t>(*flag).store(value, std::memory_order_release);
}

/// The flag of a task, or null.
inline std::int32_t* flag_of(const strata::WorkerTask& task) {
  return task.tensor_count() > 0 && task.tensor(0).dtype() == strata::DType::int32
             ? task.data<std::int32_t>(0)
             : nullptr;
}

inline void begun(const strata::WorkerTask& task) {
  if (std::int32_t* flag = flag_of(task); flag != nullptr) note(flag, ::getpid());
}

}  // namespace strata_test
