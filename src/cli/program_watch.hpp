// ProgramWatch: a program that this process has started as its sub-reaper, until nothing of it is
// left: its end, the signals that come meanwhile, what it leaves behind.
//
// Signals. What somebody sends to us is for the program and is passed on once, save those that the
// owner keeps: they mean that all is to end. Once the program has ended or all is being ended, any
// signal that asks for an end means "hurry".
//
// Thread safety: one thread. Needs adopt_orphans() and that this process has no other children.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cli/leftovers.hpp"
#include "os/child_process.hpp"
#include "os/deadline.hpp"
#include "os/spawn.hpp"
#include "os/unique_fd.hpp"

namespace strata::cli {

/// Why a program can't be started, and the exit code that says so.
class NotStarted : public std::runtime_error {
 public:
  NotStarted(int code, const std::string& why) : std::runtime_error(why), code_(code) {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// In whose process group the program is: in ours it may read from the terminal, and gets what the
/// terminal's keys send by itself.
enum class Group : std::uint8_t { ours, its_own };
/// Ours in the foreground of a terminal; elsewhere its own, so that a signal sent to our whole
/// group reaches it once, through us.
[[nodiscard]] Group usual_group();

/// Starts a program that is looked for as a shell does. Throws NotStarted.
[[nodiscard]] os::ChildProcess start_program(const std::vector<std::string>& command,
                                             std::vector<std::string> environment,
                                             std::vector<os::SpawnOptions::Descriptor> descriptors,
                                             Group group);

class ProgramWatch {
 public:
  /// `signals` from signals_as_descriptor(). `kept` is the signal that is ours; 0: none is.
  ProgramWatch(os::ChildProcess program, os::UniqueFd signals, Group group, int kept)
      : program_(std::move(program)), signals_(std::move(signals)), group_(group), kept_(kept) {}

  /// Waits until one of these is readable, a signal has come, or the deadline has passed; sees to
  /// the signals. Returns whether `fd` is readable.
  bool wait_for(int fd, os::Deadline deadline) { return wait_for(std::span(&fd, 1), deadline); }
  bool wait_for(std::span<const int> fds, os::Deadline deadline);

  [[nodiscard]] pid_t pid() const noexcept { return program_.pid(); }
  [[nodiscard]] int pidfd() const noexcept { return program_.pidfd(); }
  /// How it ended, once it has.
  [[nodiscard]] std::optional<os::ExitStatus> ended() { return program_.try_wait(); }

  /// The signal that is ours has come.
  [[nodiscard]] bool told_to_end() const noexcept { return told_to_end_; }
  /// Somebody wants it to end now.
  [[nodiscard]] bool hurried() const noexcept { return told_to_end_ || hurried_; }
  /// From now on all is being ended: what came so far is done with, more of it means "hurry".
  void begin_to_end() noexcept;
  void hurry() noexcept { hurried_ = true; }

  /// After the program's end: gives what it left a moment to end by itself, and returns what has
  /// not.
  [[nodiscard]] std::vector<Leftover> leftovers_after(std::chrono::milliseconds grace);
  /// SIGTERM, patience, SIGKILL to all there is; returns what the kernel does not give back.
  /// `watched` besides the signals: called again and again, true means "hurry".
  std::vector<Leftover> end_all(std::chrono::milliseconds patience,
                                const std::function<bool()>& watched = {});

 private:
  void take_signals();

  os::ChildProcess program_;
  os::UniqueFd signals_;
  Group group_;
  int kept_;
  bool told_to_end_ = false;
  bool hurried_ = false;
  bool ending_ = false;  ///< Signals are for us, and not passed on.
};

/// "  1234 (sleep 100)", one a line.
[[nodiscard]] std::string list_of(const std::vector<Leftover>& processes);

/// "the kernel does not give back process 1234 (cat): it is in nfs_wait"
[[nodiscard]] std::string stuck_text(const Leftover& process);

/// As a shell has it: its exit code, or 128 + the signal that killed it.
[[nodiscard]] int exit_code_of(const os::ExitStatus& status);

}  // namespace strata::cli
