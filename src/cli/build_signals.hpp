// BuildSignals: SIGINT, SIGTERM and SIGHUP during the build of a chip program end the process as
// ever, but with what the build has half done cleared away.
//
// Thread safety: made and destroyed by one thread; one at a time.
#pragma once

#include <thread>

#include "os/event_fd.hpp"
#include "os/signal_event.hpp"

namespace strata::cli {

class BuildSignals {
 public:
  /// Throws SystemError.
  BuildSignals();
  ~BuildSignals();
  BuildSignals(const BuildSignals&) = delete;
  BuildSignals& operator=(const BuildSignals&) = delete;

 private:
  void main();

  os::SignalEvents signals_;
  os::EventFd done_ = os::EventFd::make();
  std::thread thread_;  ///< Last: uses the others.
};

}  // namespace strata::cli
