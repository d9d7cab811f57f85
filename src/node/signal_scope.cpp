#include "strata/signal_scope.hpp"

#include <poll.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <optional>
#include <thread>
#include <vector>

#include "node/live_workers.hpp"
#include "node/worker_state.hpp"
#include "os/event_fd.hpp"
#include "os/signal_event.hpp"
#include "strata/error.hpp"

namespace strata {

namespace {

/// Closes all Workers, whatever they have to say about it.
void close_all_workers() noexcept {
  for (const auto& worker : node::live_workers())
    worker->cancel();
  for (const auto& worker : node::live_workers()) {
    try {
      worker->close(worker->options().close_time_limit);
    } catch (const std::exception& error) {
      worker->log().message(LogLevel::error, worker->options().name, error.what());
    }
  }
}

[[noreturn]] void die_of(int signal) {
  struct sigaction by_default = {};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(signal, &by_default, nullptr);
  sigset_t only;
  ::sigemptyset(&only);
  ::sigaddset(&only, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);  // Where the signal's default is not to end the process.
}

}  // namespace

struct SignalScope::State {
  State(Then what_then, std::initializer_list<int> which)
      : then(what_then), signals(which), events(std::span<const int>(signals)) {
    thread = std::thread([this] { main(); });
  }
  ~State() {
    ending.signal();
    thread.join();
    node::note_cancelling_signal(0);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void main() {
    for (;;) {
      pollfd ready[2] = {{events.fd(), POLLIN, 0}, {ending.fd(), POLLIN, 0}};
      if (::poll(ready, 2, -1) < 0 && errno != EINTR) return;
      if ((ready[0].revents & POLLIN) != 0) take();
      if ((ready[1].revents & POLLIN) != 0) return;
    }
  }

  void take() {
    const os::SignalSet came = events.take();
    for (const int signal : signals) {
      if (!came.contains(signal)) continue;
      int none = 0;
      // Release: whoever reads it may act on it at once; nothing else is published with it.
      first.compare_exchange_strong(none, signal, std::memory_order_release);
      node::note_cancelling_signal(signal);
      if (then == Then::terminate) {
        close_all_workers();
        die_of(signal);
      }
      for (const auto& worker : node::live_workers())
        worker->cancel();
    }
  }

  const Then then;
  const std::vector<int> signals;
  os::SignalEvents events;
  os::EventFd ending = os::EventFd::make();
  std::atomic<int> first{0};  ///< The first signal; written by the thread, read by anyone.
  std::thread thread;         ///< Last: uses all of the above.
};

SignalScope::SignalScope(Then then, std::initializer_list<int> signals)
    : state_(std::make_unique<State>(then, signals)) {}
SignalScope::~SignalScope() = default;

int SignalScope::received() const noexcept { return state_->first.load(std::memory_order_acquire); }

}  // namespace strata
