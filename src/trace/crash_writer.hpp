// Fills in the crash area of a process record from inside a signal handler.
//
// Everything here is async-signal-safe: system calls, the record's memory, the unwinder.
//
// Thread safety: one thread of the process, the one that crashes first.
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>

#include "trace/crash_handler.hpp"
#include "trace/record_layout.hpp"

namespace strata::trace {

/// Makes the unwinder load and initialise what it needs, so that it does not have to in a handler.
void warm_up_unwinder() noexcept;

/// Writes the crash: stage by stage, what is most certain first. `context` is what the kernel gave
/// to the handler; while the stack is walked its pc may be changed, and is restored. `note` may be
/// null.
void write_crash(RecordLayout& record, int signal, const siginfo_t& info, void* context,
                 CrashNote note) noexcept;

/// Keeps a text in the crash area: what an uncaught exception said. The first one counts.
void write_crash_text(CrashArea& crash, const char* text, std::size_t bytes) noexcept;

}  // namespace strata::trace
