// StackBoard: the stacks of all threads of this process, taken by itself when somebody asks from
// outside. stack_request.hpp is the other side.
//
// The thread that answers interrupts each other thread by a real-time signal; its handler copies
// the registers and what is used of the stack. It unwinds nothing, since an unwinder can crash on a
// stack that is damaged: who asks does that, on the copies.
//
// What the program may notice:
//   - The handler is installed with SA_RESTART, so most calls go on by themselves. Threads in calls
//     that the kernel ends behind any handler (nanosleep, poll, epoll_wait, pause, a futex with a
//     time-out, ...: signal(7)) are left alone, and told as such. A thread that enters such a call
//     between that look and the signal has it return EINTR, once each time somebody asks; so has
//     one that receives or accepts with a time-out set on its socket. A long write or recv() that
//     is half done returns what it has done.
//   - Threads of which /proc does not tell what they are in are left alone, and told as such.
//   - Threads that block the signal are left alone, and told as such.
//   - The signal is taken: stack_signal(). A program that has a handler of its own for it keeps it:
//     then no thread is interrupted. One that installs it later takes the signal away from us.
//
// Threads are addressed by process and thread, so nobody else ever gets the signal.
//
// Thread safety: open() once, before answer(); answer() for one thread. It takes no lock and
// allocates nothing, and neither does the handler, so both work whatever the other threads hold.
//
// Invariants
//   (1) A slot is written by one at a time: by who answers, or, from `writing` on to `whole` or
//       `no_room`, by the thread that it is for.
//   (2) A handler that comes too late writes nothing: the slot is no longer its own.
#pragma once

#include <chrono>

#include "trace/request_door.hpp"
#include "trace/stack_layout.hpp"

namespace strata::trace {

/// SIGRTMIN + 13, which is no constant: the C library takes some of the first ones for itself.
[[nodiscard]] int stack_signal() noexcept;

class StackBoard {
 public:
  /// Whoever asks waits half a second, and the looks come on top.
  static constexpr std::chrono::milliseconds kPatience{150};

  /// That of this process. Never destroyed.
  [[nodiscard]] static StackBoard& of_process();

  /// From here on others can ask. Without descriptors or memory to be had nobody can: then
  /// request_fd() is -1. Nothing happens the second time.
  void open() noexcept;
  /// Readable when somebody has asked; -1 before open().
  [[nodiscard]] int request_fd() const noexcept { return door_.request_fd(); }
  /// Answers the requests that are there: looks at each thread in /proc, for as many as there are
  /// slots, and then waits until they have begun to answer, and until they have ended, for
  /// `patience` at most each.
  void answer(std::chrono::nanoseconds patience = kPatience) noexcept;

 private:
  StackBoard() = default;

  RequestDoor door_;
};

}  // namespace strata::trace
