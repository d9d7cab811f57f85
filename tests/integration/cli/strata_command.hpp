// Runs the `strata` command, or any other program, with its output gathered.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "os/child_process.hpp"
#include "os/spawn.hpp"
#include "os/unique_fd.hpp"
#include "support/guard.hpp"

namespace strata::test {

/// A program that runs, its stdout and stderr gathered by threads.
class Program {
 public:
  struct Options {
    std::string input = {};                                      ///< Its stdin.
    std::vector<std::string> environment = {};                   ///< More of it, "NAME=value".
    std::vector<os::SpawnOptions::Descriptor> descriptors = {};  ///< More of them.
    bool own_group = false;                                      ///< It leads a process group.
    bool read_stderr = true;  ///< If not, nobody reads it until read_stderr() or finish().
  };
  explicit Program(const std::vector<std::string>& command) : Program(command, Options{}) {}
  Program(const std::vector<std::string>& command, const Options& options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] pid_t pid() const { return child_.pid(); }
  void send(int signal) { (void)child_.send(signal); }
  [[nodiscard]] bool running() { return !child_.try_wait().has_value(); }
  /// Waits until its stdout has this text, and returns all there is.
  std::string wait_for_output(const std::string& text);

  void read_stderr();

  struct Result {
    os::ExitStatus status;
    std::string out;
    std::string err;
    /// Exit code; -1 if it has none.
    [[nodiscard]] int code() const {
      return status.kind == os::ExitStatus::Kind::exited ? status.value : -1;
    }
  };
  /// Waits for its end.
  Result finish();

 private:
  struct Stream;
  void read(Stream& stream);

  Guard guard_;
  os::ChildProcess child_;
  std::unique_ptr<Stream> out_;
  std::unique_ptr<Stream> err_;
  std::thread writer_;
};

/// `strata ARGUMENTS...` until its end.
Program::Result strata_command(std::vector<std::string> arguments,
                               const Program::Options& options = {});
/// The command line "strata ARGUMENTS...".
std::vector<std::string> strata_with(std::vector<std::string> arguments);

std::vector<std::string> lines_of(const std::string& text);

/// Waits until there is no such process, or only its zombie.
void wait_until_gone(pid_t pid);

}  // namespace strata::test
