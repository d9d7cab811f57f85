// ProgramCall: the body of a task that runs a chip program, in the place of the Call that the user
// gave it. It keeps the program loaded in the chips for as long as there is the task.
//
// Thread safety: ProgramUse: any thread. ProgramCall: as any body.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "strata/callable.hpp"

namespace strata::node {

/// Who wants to know of programs that nobody uses any more.
class UnusedPrograms {
 public:
  /// `told` must neither throw nor wait for tasks.
  explicit UnusedPrograms(std::function<void(CallableId)> told) : told_(std::move(told)) {}
  /// Once this has returned nobody is told any more.
  void stop() {
    const std::lock_guard lock(mutex_);
    told_ = nullptr;
  }
  void tell(CallableId program) {
    const std::lock_guard lock(mutex_);
    if (told_) told_(program);
  }

 private:
  std::mutex mutex_;
  std::function<void(CallableId)> told_;  ///< Guarded by mutex_.
};

/// That a program is used: its Worker holds one until the program is removed, and so does each
/// task. The end of the last tells.
class ProgramUse {
 public:
  ProgramUse(CallableId program, std::optional<std::chrono::nanoseconds> time_limit,
             std::shared_ptr<UnusedPrograms> unused)
      : program_(program), time_limit_(time_limit), unused_(std::move(unused)) {}
  ~ProgramUse() { unused_->tell(program_); }
  ProgramUse(const ProgramUse&) = delete;
  ProgramUse& operator=(const ProgramUse&) = delete;

  /// Of each run of the program, as it was added.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> time_limit() const noexcept {
    return time_limit_;
  }

 private:
  CallableId program_;
  std::optional<std::chrono::nanoseconds> time_limit_;
  std::shared_ptr<UnusedPrograms> unused_;
};

class ProgramCall {
 public:
  ProgramCall(const Call& call, std::shared_ptr<const ProgramUse> use)
      : call_(call), use_(std::move(use)) {}
  [[nodiscard]] const Call& call() const noexcept { return call_; }
  [[nodiscard]] const ProgramUse& use() const noexcept { return *use_; }
  /// As Call: throws InvalidState.
  void operator()(TaskContext& context) const { call_(context); }

 private:
  Call call_;
  std::shared_ptr<const ProgramUse> use_;
};

}  // namespace strata::node
