// SignalEvents: signals that this process receives, as events in an epoll set.
//
// A handler may do next to nothing. Ours sets a bit and writes to an eventfd; whoever waits on that
// descriptor does the rest as ordinary code. Nothing is blocked, so programs that a task starts are
// as usual.
//
// Thread safety: fd() and take() may be called from any thread; made and destroyed by one.
//
// Invariants
//   (1) At most one object exists in a process.
//   (2) A signal that arrives between construction and destruction is in a later take(), once or
//       merged with others of its number; system calls it interrupts are restarted where the system
//       can (SA_RESTART).
//   (3) After destruction the handlers are what they were, and none of ours runs.
#pragma once

#include <signal.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "os/event_fd.hpp"

namespace strata::os {

/// A set of signals, as SignalEvents::take() returns it.
class SignalSet {
 public:
  constexpr SignalSet() = default;
  constexpr explicit SignalSet(std::uint64_t bits) noexcept : bits_(bits) {}
  [[nodiscard]] static constexpr std::uint64_t bit(int signal) noexcept {
    return std::uint64_t{1} << (signal - 1);
  }
  [[nodiscard]] constexpr bool contains(int signal) const noexcept {
    return signal >= 1 && signal <= 64 && (bits_ & bit(signal)) != 0;
  }
  [[nodiscard]] constexpr bool empty() const noexcept { return bits_ == 0; }
  [[nodiscard]] constexpr std::uint64_t bits() const noexcept { return bits_; }

 private:
  std::uint64_t bits_ = 0;
};

class SignalEvents {
 public:
  /// Installs the handlers. Throws InvalidState if there is such an object already, SystemError for
  /// a signal that can't be handled.
  explicit SignalEvents(std::span<const int> signals);
  SignalEvents(std::initializer_list<int> signals)
      : SignalEvents(std::span(signals.begin(), signals.size())) {}
  SignalEvents(const SignalEvents&) = delete;
  SignalEvents& operator=(const SignalEvents&) = delete;
  ~SignalEvents();

  /// Readable when a signal has arrived since the last take().
  [[nodiscard]] int fd() const noexcept { return event_.fd(); }
  /// The signals that have arrived since the last take().
  [[nodiscard]] SignalSet take() noexcept;

 private:
  void restore() noexcept;

  EventFd event_;
  std::vector<std::pair<int, struct sigaction>> previous_;
};

}  // namespace strata::os
