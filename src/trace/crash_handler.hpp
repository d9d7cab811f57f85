// Leaves the reason of a crash in the process record, where the parent reads it.
//
// On SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT the handler writes signal, address, registers, the
// list of mappings, the stack of the thread and the build ids of what is loaded into the record,
// calls the handler that was installed before, and lets the process die of the same signal. It uses
// nothing but system calls, memory that is there already, and the unwinder of the C++ runtime,
// which takes no lock on glibc 2.35 and later; so it works inside malloc and the loader too. Should
// the unwinder crash itself, what was written before stays; should it hang, the control thread sees
// crash_in_progress_since() and ends the process.
//
// Other libraries install handlers of their own. One that was there before ours is called by ours;
// one that comes later and calls the one before calls ours. Where both are true for the same
// library the second call of ours ends the process. A library that sets SIG_DFL loses us: the
// parent still sees which signal it was.
//
// Thread safety: each function says. The handler: the first thread that crashes writes; others that
// crash meanwhile wait for the end of the process.
#pragma once

#include <signal.h>

#include <chrono>
#include <cstddef>
#include <optional>

#include "os/mapping.hpp"

namespace strata::trace {

class ProcessRecord;

/// A stack for signal handlers of the calling thread, so that a crash by stack overflow can be
/// handled at all. There is a guard page below it. Does nothing where the thread has one already.
///
/// Thread safety: made and destroyed by the thread that it is for.
class AlternateStack {
 public:
  static constexpr std::size_t kBytes = 64 * 1024;
  /// Throws SystemError.
  AlternateStack();
  ~AlternateStack();
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;

 private:
  std::optional<os::Mapping> mapping_;
  stack_t previous_ = {};
};

/// Installs the handlers, an alternate stack for the calling thread, and the terminate handler that
/// keeps what an uncaught exception says. The record must live as long as the process. Called
/// again, it writes to the new record and installs again what others have replaced. Throws
/// SystemError. For one thread at a time.
void install_crash_handler(ProcessRecord& record);

/// The same for a process that was spawned with a record as descriptor 5, as early as a constructor
/// of the program can call it; does nothing in any other process. Failures are silent: the main
/// program meets them again. Returns the record, for the rest of the process's life, or null.
/// Called again, returns the same one. For one thread at a time.
ProcessRecord* early_crash_handler() noexcept;

/// Writes what the calling thread is doing, in words, and returns how many bytes that are, at most
/// `bytes`; 0 for nothing. Called in the handler by the thread that crashes: async-signal-safe.
using CrashNote = std::size_t (*)(char* to, std::size_t bytes);
/// Adds such a text to the record of a crash from now on; null ends that. Any thread.
void set_crash_note(CrashNote note) noexcept;

/// CLOCK_MONOTONIC of when a crash began, if one has. Any thread; safe in a signal handler.
[[nodiscard]] std::optional<std::chrono::nanoseconds> crash_in_progress_since() noexcept;

/// Name of the environment variable that tells a process that it is a worker.
inline constexpr char kWorkerToken[] = "STRATA_WORKER_TOKEN";
/// Descriptor of the process record in a worker.
inline constexpr int kRecordDescriptor = 5;

}  // namespace strata::trace
