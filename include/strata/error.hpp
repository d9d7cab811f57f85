// The exceptions that Strata throws at its public edge.
//
// Every message says what failed, where (run, task, argument), why, and what to do about it. No
// message is ever cut.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "strata/ids.hpp"

namespace strata {

/// Base of all of Strata's exceptions.
class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Bad input, found before anything was started; the run can go on.
class InvalidArgument : public Error {
  using Error::Error;
};

/// A call that the object's state does not allow: a closed engine, a scope closed twice, ...
class InvalidState : public Error {
  using Error::Error;
};

/// The operating system refused what Strata needs of it.
class SystemError : public Error {
 public:
  /// `what` says what was tried; the message is that and the system's own text for `code`.
  SystemError(const std::string& what, int code)
      : Error(what + ": " + std::generic_category().message(code)), code_(code) {}
  /// The errno value.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// The window or the heap is full and it is proved that waiting can't end. See
/// docs/reference/back-pressure.md for the proof. The engine is usable afterwards.
class CapacityError : public Error {
 public:
  enum class Resource : std::uint8_t { window, heap };
  /// What was found; sizes are tasks for the window and bytes for the heap.
  struct Facts {
    Resource resource = Resource::heap;
    std::string run = {};    ///< Name of the run that asked.
    std::string scope = {};  ///< Path of the scope that asked, "root/tiles".
    std::uint64_t asked = 0;
    std::uint64_t capacity = 0;
    std::uint64_t used = 0;
    std::uint64_t largest_hole = 0;  ///< Largest contiguous room once all that can end has ended.
    bool fragmented = false;         ///< Enough room in all, but in no one piece.
    std::string oldest_holder = {};  ///< Who holds the oldest allocation that can't be freed.
    std::string setting = {};        ///< The option to change ...
    std::uint64_t suggested = 0;     ///< ... and a value that would do.
  };
  CapacityError(const std::string& message, Facts facts)
      : Error(message), facts_(std::move(facts)) {}
  [[nodiscard]] const Facts& facts() const noexcept { return facts_; }

 private:
  Facts facts_;
};

/// The run was cancelled. Thrown to its orchestration and to whoever asks for its result.
class Cancelled : public Error {
  using Error::Error;
};

/// The run did not end by its deadline. Thrown like Cancelled.
class DeadlineExceeded : public Cancelled {
  using Cancelled::Cancelled;
};

/// One task that failed of its own, or was skipped.
struct TaskFailure {
  TaskId task;
  std::string name;     ///< Name of the task.
  std::string message;  ///< What it threw; for a skipped task, why it was skipped.
  TaskId cause;         ///< The task whose failure caused the skip; none for a failure of its own.
  std::exception_ptr exception;  ///< What the task threw; null for a skipped task.
};

/// A run ended with failed tasks. what() tells the first cause; the lists tell all.
class RunFailed : public Error {
 public:
  RunFailed(const std::string& message, std::vector<TaskFailure> failed,
            std::vector<TaskFailure> skipped)
      : Error(message), failed_(std::move(failed)), skipped_(std::move(skipped)) {}
  /// Tasks that threw, in the order in which they failed.
  [[nodiscard]] const std::vector<TaskFailure>& failed() const noexcept { return failed_; }
  /// Tasks that were not run since what they read was never rightly written.
  [[nodiscard]] const std::vector<TaskFailure>& skipped() const noexcept { return skipped_; }

 private:
  std::vector<TaskFailure> failed_;
  std::vector<TaskFailure> skipped_;
};

/// An orchestration could not be recorded, or a recording could not be replayed.
class RecordingError : public Error {
  using Error::Error;
};

}  // namespace strata
