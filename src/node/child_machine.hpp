// ChildMachine: the life of one worker process as a table of states and events.
//
// The table is total: every event has one action and one next state in every state. It is the whole
// truth about what the supervisor does with a process: the table in docs/reference/worker-states.md
// and the one of the formal model of start and close (tests/model) are generated from it, and tests
// execute every cell.
//
//   absent -> spawned -> connected -> initialising -> ready
//                                                       | stop
//                                                     asked -> terminating -> killing -> absent
//                                                                                 `-> abandoned
//
// Invariants
//   (1) In absent and abandoned no process is ours; in every other state there is exactly one, and
//       it has not been waited for.
//   (2) A process is left by one way only: `exited` (then it is buried, once) or, after SIGKILL,
//       `timeout` (then it is handed to the reaper, once).
//   (3) From every state `stop` followed by time-outs leads to absent or abandoned.
//   (4) What a process that is being ended says is ignored; only nonsense hurries its end.
//
// Thread safety: the table is constant.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata::node {

enum class ChildState : std::uint8_t {
  absent,        ///< No process.
  spawned,       ///< There is a process; it has said nothing yet.
  connected,     ///< It said hello.
  initialising,  ///< It told of a first step.
  ready,         ///< It runs tasks.
  asked,         ///< It was asked to stop.
  terminating,   ///< It got SIGTERM.
  killing,       ///< It got SIGKILL.
  abandoned,     ///< The kernel did not give it back in time; the reaper has it.
};
inline constexpr std::size_t kChildStates = 9;

enum class ChildEvent : std::uint8_t {
  start,         ///< A process is wanted here.
  spawn_failed,  ///< The system could not make one.
  hello,         ///< Messages of the process ...
  step,
  ready,
  failed,        ///< ... it can't start, or can't go on.
  broken,        ///< It said what makes no sense.
  disconnected,  ///< Its end of the control channel is closed.
  exited,        ///< It has ended and was waited for.
  stop,          ///< It shall end in good order.
  end,           ///< It shall end at once.
  timeout,       ///< The time for this state is over.
};
inline constexpr std::size_t kChildEvents = 12;

enum class ChildAction : std::uint8_t {
  ignore,      ///< Nothing.
  spawn,       ///< Make the process and send it its configuration.
  note,        ///< Write down what it said.
  announce,    ///< It is ready: tell who waits, let tasks go to it.
  fail_spawn,  ///< Write down that it could not be made; tell who waits.
  blame,       ///< Write down what is wrong with it (its own words if it has any), then SIGKILL.
  ask,         ///< Send "stop" over the lifeline.
  insist,      ///< Send SIGTERM.
  kill,        ///< Send SIGKILL.
  bury,        ///< It is gone: find the cause, settle its tasks, let its resources go.
  abandon,     ///< Hand it to the reaper, and settle its tasks.
};

struct ChildTransition {
  ChildAction action;
  ChildState next;
};

/// What is done and what comes next; the table.
[[nodiscard]] constexpr ChildTransition transition(ChildState state, ChildEvent event) noexcept {
  using S = ChildState;
  using E = ChildEvent;
  using A = ChildAction;
  constexpr ChildTransition kKill{A::kill, S::killing};
  constexpr ChildTransition kBlame{A::blame, S::killing};
  constexpr ChildTransition kBury{A::bury, S::absent};
  constexpr ChildTransition kAsk{A::ask, S::asked};
  const ChildTransition stay{A::ignore, state};
  switch (state) {
    case S::absent:
    case S::abandoned:
      if (event == E::start) return {A::spawn, S::spawned};
      return stay;
    case S::spawned:
      switch (event) {
        case E::spawn_failed:
          return {A::fail_spawn, S::absent};
        case E::hello:
          return {A::note, S::connected};
        case E::step:
        case E::ready:
        case E::broken:
        case E::failed:
        case E::disconnected:
        case E::timeout:
          return kBlame;
        case E::exited:
          return kBury;
        case E::stop:
          return kAsk;
        case E::end:
          return kKill;
        case E::start:
          return stay;
      }
      break;
    case S::connected:
    case S::initialising:
      switch (event) {
        case E::step:
          return {A::note, S::initialising};
        case E::ready:
          return {A::announce, S::ready};
        case E::hello:
        case E::broken:
        case E::failed:
        case E::disconnected:
        case E::timeout:
          return kBlame;
        case E::exited:
          return kBury;
        case E::stop:
          return kAsk;
        case E::end:
          return kKill;
        case E::start:
        case E::spawn_failed:
          return stay;
      }
      break;
    case S::ready:
      switch (event) {
        case E::step:
          return {A::note, S::ready};
        case E::hello:
        case E::ready:
        case E::broken:
        case E::failed:
        case E::disconnected:
          return kBlame;
        case E::exited:
          return kBury;
        case E::stop:
          return kAsk;
        case E::end:
          return kKill;
        case E::start:
        case E::spawn_failed:
        case E::timeout:
          return stay;
      }
      break;
    case S::asked:
    case S::terminating:
      switch (event) {
        case E::exited:
          return kBury;
        case E::broken:
        case E::end:
          return kKill;
        case E::timeout:
          return state == S::asked ? ChildTransition{A::insist, S::terminating} : kKill;
        case E::start:
        case E::spawn_failed:
        case E::hello:
        case E::step:
        case E::ready:
        case E::failed:
        case E::disconnected:
        case E::stop:
          return stay;
      }
      break;
    case S::killing:
      if (event == E::exited) return kBury;
      if (event == E::timeout) return {A::abandon, S::abandoned};
      return stay;
  }
  return stay;
}

[[nodiscard]] constexpr bool has_process(ChildState state) noexcept {
  return state != ChildState::absent && state != ChildState::abandoned;
}
/// Between spawn and ready.
[[nodiscard]] constexpr bool is_starting(ChildState state) noexcept {
  return state == ChildState::spawned || state == ChildState::connected ||
         state == ChildState::initialising;
}
[[nodiscard]] constexpr bool is_ending(ChildState state) noexcept {
  return state == ChildState::asked || state == ChildState::terminating ||
         state == ChildState::killing;
}

[[nodiscard]] std::string_view name_of(ChildState state) noexcept;
[[nodiscard]] std::string_view name_of(ChildEvent event) noexcept;
[[nodiscard]] std::string_view name_of(ChildAction action) noexcept;

}  // namespace strata::node
