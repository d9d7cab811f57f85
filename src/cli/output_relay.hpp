// OutputRelay: the output of a program, on its way to where it would have gone without us, with the
// last of it remembered.
//
//   the program ── pipe ── reader ── queue ── writer ── our stdout
//
// Bytes are passed on as they come, none changed, none lost. If nobody takes them, the queue fills,
// then the pipe, and then the program waits, as it would have. The reader does not wait for the
// writer when it is told to drain(), so what the program has written can be known although nobody
// takes our output. If nobody can take it ever (a closed pipe), the program's pipe is closed, too.
//
// Thread safety: all members are for one thread.
//
// Invariants
//   (1) What drain() returns after was in the pipe before it was called, and all of that was taken.
//   (2) What insert() is given leaves in one piece, after all that was taken before.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include "os/unique_fd.hpp"

namespace strata::cli {

class OutputRelay {
 public:
  /// Passes on to `target`, which it does not own. Throws SystemError.
  explicit OutputRelay(int target);
  /// Leaves threads behind that can't finish.
  ~OutputRelay();
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  /// The end that is the program's; close_write_end() once the program has it.
  [[nodiscard]] int write_end() const noexcept { return write_end_.get(); }
  void close_write_end() { write_end_.reset(); }
  /// Begins. Requires that all signals that a handler is to see are blocked.
  void start();

  /// Takes all that is in the pipe now, wherever it goes.
  void drain();
  /// The last lines that were taken, no more than kTailBytes of them.
  [[nodiscard]] std::string tail(std::size_t lines) const;
  static constexpr std::size_t kTailBytes = std::size_t{64} << 10;
  /// Passes on a text of our own, on lines of its own.
  void insert(const std::string& text);

  /// Nobody writes any more: passes on what is left. False if `patience` was over and nobody had
  /// taken a byte in all of it; the rest is lost then.
  bool finish(std::chrono::milliseconds patience);
  /// The errno value with which the target has refused to take any more; 0 if it has not.
  [[nodiscard]] int error() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< Shared with the threads, which may be stuck.
  os::UniqueFd write_end_;
  std::thread reader_;
  std::thread writer_;
};

}  // namespace strata::cli
