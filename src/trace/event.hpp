// Event: what a thread writes down about itself as it goes, 32 bytes at a time.
//
// Thread safety: values.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::trace {

/// What happened. The numbers are a part of the process record's layout: new ones go to the end.
/// Beside each, what the two words of the event say.
enum class EventKind : std::uint32_t {
  none = 0,
  task_start,        ///< a: task, b: 0
  task_end,          ///< a: task, b: 0 if it went well
  dispatch,          ///< a: task, b: lane
  completion,        ///< a: task, b: status
  state_transition,  ///< a: state before, b: state after (ProcessState)
  spawn,             ///< a: pid of the child
  death,             ///< a: pid of the child, b: status as waitid() tells it
  message,           ///< a: kind of the message, b: bytes
  run_open,          ///< a: run
  run_end,           ///< a: run, b: 0 if it went well
  cancel,            ///< a: run or task
  step,              ///< a: bytes of the step's text
};

/// "task_start"; "event 77" for a number that this build does not know.
[[nodiscard]] std::string name_of(EventKind kind);

/// One event, as read back.
struct Event {
  std::uint64_t cycles = 0;  ///< os::cycle_count() of when it was recorded.
  EventKind kind = EventKind::none;
  std::uint32_t detail = 0;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  /// The same instant on CLOCK_MONOTONIC.
  std::chrono::nanoseconds at{0};
};

/// What happened, in words: "task 17 began".
[[nodiscard]] std::string describe(const Event& event);

/// What one thread recorded: its latest events, oldest first.
struct ThreadEvents {
  std::uint32_t thread = 0;    ///< Id of the thread, as the kernel numbers them.
  std::string name;            ///< Name of the thread when it recorded its first event.
  std::uint64_t recorded = 0;  ///< Events in all; those that are not in `events` were overwritten.
  std::vector<Event> events;
};

/// The latest of all threads, oldest first.
[[nodiscard]] std::vector<Event> latest(const std::vector<ThreadEvents>& threads,
                                        std::size_t count);

}  // namespace strata::trace
