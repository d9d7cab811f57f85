// Program: another program, run by a test: with arguments and environment, its output line by line,
// its end. It and all that it starts carry a mark of their own (support/marked_processes.hpp).
//
// The destructor ends the program and all that is left of what it started.
//
// Thread safety: belongs to one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/marked_processes.hpp"

namespace strata::test {

/// How a program ended.
struct ProgramEnd {
  int exit_code = -1;  ///< -1 if a signal ended it.
  int signal = 0;      ///< 0 if it exited.
  friend bool operator==(const ProgramEnd&, const ProgramEnd&) = default;
};
[[nodiscard]] std::string to_string(const ProgramEnd& end);
void PrintTo(const ProgramEnd& end, std::ostream* stream);  ///< For GoogleTest.

class Program {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;
  /// `path` without a slash is looked for among the test programs. `environment` is added to this
  /// process's own.
  explicit Program(const std::string& path, const std::vector<std::string>& arguments = {},
                   const Environment& environment = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] const std::string& mark() const noexcept { return mark_; }

  /// Waits for a line of its stdout that begins so, and takes all lines up to it. Nothing, with a
  /// failure of the running test, if it does not come in time or the program ends before.
  std::optional<std::string> line(const std::string& beginning, std::chrono::milliseconds promised);
  /// Writes a line to its stdin.
  void send(const std::string& line);
  void signal(int number) const;
  /// Waits for its end; nothing if it does not come in time.
  [[nodiscard]] std::optional<ProgramEnd> end(std::chrono::milliseconds promised);
  [[nodiscard]] bool ended();

  /// All that it wrote so far; of a program whose end is known, all that it wrote.
  [[nodiscard]] std::string output() const;
  [[nodiscard]] std::string errors() const;
  /// Other processes that came of it and live.
  [[nodiscard]] std::vector<MarkedProcess> descendants() const;

 private:
  class Reader;
  pid_t pid_ = -1;
  std::string mark_;
  int stdin_ = -1;
  std::unique_ptr<Reader> output_;
  std::unique_ptr<Reader> errors_;
  std::size_t taken_ = 0;  ///< Bytes of the output that line() has passed.
  std::optional<ProgramEnd> end_;
};

/// Of the libraries and programs that tests/programs builds.
[[nodiscard]] std::string test_library(const std::string& name);
[[nodiscard]] std::string test_program(const std::string& name);

}  // namespace strata::test
