// Callable: where the code of a task that runs in a worker process is found. Call: a task's body
// that names one.
//
//   const CallableId scale = worker.add(Callable::library("./libmath.so", "scale"));
//   worker.run([&](Orchestration& run) {
//     run.submit(Call(scale), inout(x), scalar(2.0F), on(worker.any_sub()));
//   });
//
// Thread safety: plain values.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "strata/chip_run_options.hpp"
#include "strata/task_context.hpp"

namespace strata {

/// Names a callable of one Worker; given by Worker::add, the same again for the same callable.
struct CallableId {
  std::uint32_t value = 0;  ///< 0 names none.
  friend constexpr auto operator<=>(CallableId, CallableId) = default;
};

/// A function of type void(WorkerTask&), by where it is found; or a chip program, which chip
/// workers run on the cores of their chip. A next-level worker also runs functions of type
/// void(Worker&, Orchestration&, WorkerTask&), its orchestrations.
struct Callable {
  enum class Source : std::uint8_t {
    library,       ///< `symbol` of the shared library `library`.
    program,       ///< The WorkerFunction named `symbol` in the user's own executable.
    chip_program,  ///< The chip program file `library`.
    builtin,       ///< The function of Strata's own named `symbol`; not for users.
  };
  Source source = Source::library;
  std::string library = {};
  std::string symbol = {};
  bool orchestration = false;  ///< Takes (Worker&, Orchestration&, WorkerTask&).
  ChipRunOptions run = {};     ///< Of a chip program: how it is run.

  /// A function with C linkage (STRATA_WORKER_FUNCTION) of a shared library. A relative path that
  /// has a slash is taken from the current directory of the process that registers it; a bare file
  /// name is looked for as dlopen does.
  [[nodiscard]] static Callable in_library(std::string path, std::string symbol);
  /// A function registered by name in the user's executable; for workers that run that.
  [[nodiscard]] static Callable in_program(std::string name);
  /// A file that build_chip_program() or `strata build` has made. One program may be added several
  /// times, with other options each: the id that a task calls chooses how it is run. What is not
  /// set in `run` is taken from ChipOptions::run.
  [[nodiscard]] static Callable chip_program(std::string file, ChipRunOptions run = {});
  /// The same callable, as an orchestration for next-level workers.
  [[nodiscard]] Callable as_orchestration() const;

  /// "scale (in ./libmath.so)", for messages.
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const Callable&, const Callable&) = default;
};

/// A task's body: call a callable in the worker process that the task is for.
class Call {
 public:
  explicit Call(CallableId callable) noexcept : callable_(callable) {}
  /// The same with a bound on how long the task may run, from its start in the worker. Then it is
  /// told (WorkerTask::cancelled), and if it goes on for WorkerOptions::cancel_grace its worker is
  /// ended and replaced. It fails with DeadlineExceeded. A chip program fails with a RemoteError
  /// instead, of code deadline_exceeded or kernel_overran, that says what each core was at.
  [[nodiscard]] Call within(std::chrono::nanoseconds time_limit) const noexcept {
    Call copy = *this;
    copy.time_limit_ = time_limit;
    return copy;
  }
  /// The same with a time of its own in the place of WorkerOptions::cancel_grace: how long the task
  /// may go on once it was told to stop. If there is a time limit too, a worker that has not been
  /// able to take the task by then is ended as well.
  [[nodiscard]] Call stopping_within(std::chrono::milliseconds grace) const noexcept {
    Call copy = *this;
    copy.grace_ms_ = static_cast<std::int32_t>(std::clamp<std::chrono::milliseconds::rep>(
        grace.count(), 0, std::numeric_limits<std::int32_t>::max()));
    return copy;
  }
  [[nodiscard]] CallableId callable() const noexcept { return callable_; }
  /// Zero means no limit.
  [[nodiscard]] std::chrono::nanoseconds time_limit() const noexcept { return time_limit_; }
  /// Nothing means the Worker's.
  [[nodiscard]] std::optional<std::chrono::milliseconds> cancel_grace() const noexcept {
    if (grace_ms_ < 0) return std::nullopt;
    return std::chrono::milliseconds(grace_ms_);
  }

  /// Throws InvalidState: a lane of this process can't run it.
  void operator()(TaskContext& context) const;

 private:
  CallableId callable_;
  std::int32_t grace_ms_ = -1;
  std::chrono::nanoseconds time_limit_{0};
};

}  // namespace strata
