// Checking mode: every load and store of a kernel is tested against what its task has declared.
//
// Kernels of programs that were built for it (ChipBuildOptions::check) call us before each access
// (check_callbacks.cpp). What they may touch: the bytes of their tensor arguments as declared, an
// `out` only after this task has written the byte; their thread's stack; constants of the program;
// what the runtime has handed them. Anything else is noted, goes on, and fails the run at its end.
//
//   CheckSession session(program.info());                 // The runtime, for a run with `check`.
//   { CheckedBlock checked(&session, context, launch, kernel, block); kernel.function(...); }  //
//   Pool session.finish(error);                                // The runtime, at the end of the
//   run.
//
// Thread safety: CheckSession: all members, any thread, save that finish() comes when no block is
// checked any more. A CheckedBlock belongs to the thread that made it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "chip/program/kernel_set.hpp"
#include "strata/chip.hpp"
#include "strata/chip_program.hpp"
#include "strata/task_context.hpp"

namespace strata::chip {

class CheckedTask;
struct CheckedThread;

/// The checks of one run.
class CheckSession {
 public:
  /// Throws ChipError (bad_configuration) if the program was not built for checking, or if this
  /// build of Strata can't check.
  explicit CheckSession(const ChipProgramInfo& program);
  ~CheckSession();
  CheckSession(const CheckSession&) = delete;
  CheckSession& operator=(const CheckSession&) = delete;

  /// Accesses so far that were not declared.
  [[nodiscard]] std::uint64_t violations() const;
  /// All that is known of them, in lines; empty if there are none. Looks up lines in files.
  [[nodiscard]] std::string report() const;
  /// Throws ChipError (undeclared_access) with the report, and with what the run itself failed
  /// with, if there were violations; otherwise rethrows `run_error` if it is set.
  void finish(const std::exception_ptr& run_error = nullptr) const;

  class Impl;

 private:
  friend class CheckedBlock;
  std::unique_ptr<Impl> impl_;
};

/// While it lives, the calling thread's accesses are those of this block (Kernel::info). Nothing
/// happens if `session` is null. Made for every lane of every block of a task. `entry` and
/// `kernel` outlive it; `kernel` is a local variable of the function that calls the kernel.
class CheckedBlock {
 public:
  CheckedBlock(CheckSession* session, const TaskContext& task, const Launch& launch,
               const KernelEntry& entry, const Kernel& kernel);
  ~CheckedBlock();
  CheckedBlock(const CheckedBlock&) = delete;
  CheckedBlock& operator=(const CheckedBlock&) = delete;

 private:
  std::unique_ptr<CheckedThread> state_;
  CheckedThread* outer_ = nullptr;
};

enum class CheckedAccess : std::uint8_t { load, store };
/// An access that the runtime makes on behalf of the kernel that runs on this thread (the data of a
/// push or a pop); `pc` is the address that the service returns to. Nothing if none is checked.
void check_service_access(CheckedAccess access, const void* data, std::size_t bytes,
                          const void* pc) noexcept;

/// One element of what fresh memory is filled with in checking mode: a NaN of its own for floats.
[[nodiscard]] const void* poison_of(DType dtype) noexcept;
/// How many of `count` elements are poison.
[[nodiscard]] std::uint64_t count_poison(const void* data, DType dtype,
                                         std::uint64_t count) noexcept;

}  // namespace strata::chip
