#include "cli/build_signals.hpp"

#include <poll.h>
#include <signal.h>

#include <array>

#include "chip/program/program_cache.hpp"

namespace strata::cli {

namespace {
constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
}  // namespace

BuildSignals::BuildSignals() : signals_(kSignals), thread_([this] { main(); }) {}

BuildSignals::~BuildSignals() {
  done_.signal();
  thread_.join();
}

void BuildSignals::main() {
  std::array<pollfd, 2> watched{pollfd{.fd = signals_.fd(), .events = POLLIN, .revents = 0},
                                pollfd{.fd = done_.fd(), .events = POLLIN, .revents = 0}};
  for (;;) {
    if (::poll(watched.data(), watched.size(), -1) < 0) continue;  // Interrupted.
    // A signal comes first: it may have come just before the end of the build.
    const os::SignalSet arrived = signals_.take();
    for (const int signal : kSignals) {
      if (arrived.contains(signal)) chip::WorkFolder::end_by_signal(signal);
    }
    if (watched[1].revents != 0) return;
  }
}

}  // namespace strata::cli
