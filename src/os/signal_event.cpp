#include "os/signal_event.hpp"

#include <sched.h>

#include <atomic>
#include <cerrno>
#include <string>

#include "os/system_error.hpp"

namespace strata::os {
namespace {

// What the handler works on. A handler may run in any thread, at any instruction, and nothing in it
// may lock; so these are lock-free and live as long as the process.
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Bits of the signals that have arrived. Set by handlers with release, before they raise the
/// event; take() clears it with acquire, after it has lowered the event. So a bit that take() does
/// not see is followed by an event.
std::atomic<std::uint64_t> g_arrived{0};
/// Descriptor of the event, or -1. Written by the owner; read by handlers.
std::atomic<int> g_event{-1};
/// How many handlers run. The owner waits for zero before it closes the descriptor. Sequentially
/// consistent with g_event: a handler counts itself and then reads, the owner writes and then reads
/// the count, so one of them sees the other.
std::atomic<int> g_running{0};
/// Whether there is an object. Only for invariant (1).
std::atomic<bool> g_owned{false};

extern "C" void strata_note_signal(int signal) {
  g_running.fetch_add(1);
  g_arrived.fetch_or(SignalSet::bit(signal), std::memory_order_release);
  if (const int fd = g_event.load(); fd >= 0) EventFd::signal(fd);
  g_running.fetch_sub(1);
}

}  // namespace

SignalEvents::SignalEvents(std::span<const int> signals) : event_(EventFd::make()) {
  if (g_owned.exchange(true)) {
    throw InvalidState("signals are made into events by another object of this process already");
  }
  g_arrived.store(0, std::memory_order_relaxed);
  g_event.store(event_.fd());
  previous_.reserve(signals.size());
  for (const int signal : signals) {
    struct sigaction action {};
    action.sa_handler = strata_note_signal;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    struct sigaction before {};
    if (::sigaction(signal, &action, &before) != 0) {
      const int code = errno;
      restore();
      throw SystemError("can't handle signal " + std::to_string(signal), code);
    }
    previous_.emplace_back(signal, before);
  }
}

SignalEvents::~SignalEvents() { restore(); }

void SignalEvents::restore() noexcept {
  // In reverse, so that a signal that was listed twice gets its first handler back.
  for (auto it = previous_.rbegin(); it != previous_.rend(); ++it) {
    ::sigaction(it->first, &it->second, nullptr);
  }
  g_event.store(-1);
  while (g_running.load() != 0)
    ::sched_yield();
  g_owned.store(false);
}

SignalSet SignalEvents::take() noexcept {
  event_.drain();
  return SignalSet(g_arrived.exchange(0, std::memory_order_acquire));
}

}  // namespace strata::os
