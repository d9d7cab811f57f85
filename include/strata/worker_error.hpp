// The exceptions that tell of worker processes: a start that failed, a worker that died, a task
// that failed in another process, a close that had to use force.
#pragma once

#include <string>
#include <vector>

#include "strata/chip_error.hpp"
#include "strata/error.hpp"

namespace strata {

/// What is known of one worker process that failed.
struct WorkerFault {
  std::string path = {};   ///< "node/next[0]/sub[1]".
  std::string role = {};   ///< "sub worker".
  int pid = 0;             ///< 0 if there was no process.
  std::string state = {};  ///< State it was in: "initialising", "ready".
  std::string step = {};   ///< What it did last: "load library x", "running scale".
  std::string cause =
      {};  ///< "killed by signal 11 (segmentation fault)", or its own message, whole.
  std::string type = {};                ///< Type of the exception that it threw, if it did.
  std::string code = {};                ///< name_of() an ErrorCode, for errors of chips.
  std::string task = {};                ///< "task 17 'scale'", if it ran one.
  std::string callable = {};            ///< What that task called.
  std::string note = {};                ///< What the thread that crashed ran: a kernel, where.
  std::vector<std::string> stack = {};  ///< Of the thread that crashed, one frame each.
  /// The last that its flight recorder has: "12 ms before: task 17 began".
  std::vector<std::string> events = {};
  std::vector<std::string> log = {};  ///< The last lines that it wrote.
  /// All of it as text: what failed, where, why, and the log.
  [[nodiscard]] std::string to_string() const;
};

/// Base of the errors that have one worker process to blame.
class WorkerError : public Error {
 public:
  WorkerError(const std::string& message, WorkerFault fault)
      : Error(message), fault_(std::move(fault)) {}
  [[nodiscard]] const WorkerFault& fault() const noexcept { return fault_; }
  /// What went wrong, for errors of chips and chip programs; otherwise ErrorCode::none.
  [[nodiscard]] ErrorCode code() const noexcept { return error_code(fault_.code); }

 private:
  WorkerFault fault_;
};

/// Worker::init: a process of the tree could not be started, died, or was not ready in time. All
/// others have been ended.
class StartFailed : public WorkerError {
  using WorkerError::WorkerError;
};

/// A task failed since its worker process died or was ended.
class WorkerDied : public WorkerError {
  using WorkerError::WorkerError;
};

/// A task threw in its worker process; fault() has the type and the whole text.
class RemoteError : public WorkerError {
  using WorkerError::WorkerError;
};

/// Worker::close: what did not end well. The Worker is closed nevertheless.
class CloseFailed : public Error {
 public:
  CloseFailed(const std::string& message, std::vector<WorkerFault> faults)
      : Error(message), faults_(std::move(faults)) {}
  [[nodiscard]] const std::vector<WorkerFault>& faults() const noexcept { return faults_; }

 private:
  std::vector<WorkerFault> faults_;
};

}  // namespace strata
