// SignalScope: what signals like Ctrl-C do to the Workers of this process.
//
// Without one Strata installs no signal handler: a signal does what it always does, and worker
// processes end with the program however it ends. With one, the handler does nothing but note the
// signal; a thread of the scope then cancels all Workers (Worker::cancel). No handler ever throws.
//
// Thread safety: at most one at a time, in any thread.
#pragma once

#include <csignal>
#include <initializer_list>
#include <memory>

namespace strata {

class SignalScope {
 public:
  enum class Then : std::uint8_t {
    /// Calls in progress throw Cancelled, and so does what is begun later while the scope lives.
    cancel,
    terminate,  ///< Once the Workers are closed the process dies of the signal.
  };
  /// Throws InvalidState if there is one already.
  explicit SignalScope(Then then = Then::cancel,
                       std::initializer_list<int> signals = {SIGINT, SIGTERM, SIGHUP});
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;
  /// Puts the earlier handlers back.
  ~SignalScope();

  /// The first signal that came, or 0.
  [[nodiscard]] int received() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata
