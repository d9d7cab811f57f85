// What `strata test` prints: a line for each attempt, a group with all that there is for each that
// is not good, a summary; on a terminal also a line at the bottom that says how far it is.
//
// A group is printed in one piece once its job has ended, so that what several jobs write is never
// mixed. In GitHub Actions it is a group that can be folded, in which nothing that a job prints is
// taken for a command.
//
// Thread safety: one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/jobs/job.hpp"
#include "cli/jobs/result.hpp"

namespace strata::cli::jobs {

struct ConsoleOptions {
  enum class Style : std::uint8_t { plain, github };
  enum class Groups : std::uint8_t { not_good, all, none };
  int fd = 1;
  Style style = Style::plain;
  Groups groups = Groups::not_good;  ///< Of which attempts.
  bool terminal = false;
  std::size_t slowest = 5;  ///< Jobs that are named for the time they took.
};

class Console {
 public:
  /// Style and terminal as the environment and `fd` say.
  [[nodiscard]] static ConsoleOptions usual_options(int fd);
  Console(ConsoleOptions options, std::size_t jobs) : options_(options), jobs_(jobs) {}

  /// How far it is: printed only on a terminal.
  void running(const std::vector<std::string>& names, std::chrono::seconds since);
  /// An attempt is over; `retried` if there will be another one.
  enum class Next : std::uint8_t { done, retried };
  void attempt(const Job& job, const Attempt& attempt, std::size_t number, Next next);
  /// A job that was not started is done.
  void without_attempt(const Job& job, Outcome outcome, const std::string& reason);
  void say(const std::string& text);
  void summary(const std::vector<Job>& jobs, const SessionResult& result);

 private:
  void print(const std::string& text);
  void line(const Job& job, Outcome outcome, double seconds, const std::string& note);
  void group(const std::string& title, const std::string& body, const Attempt& attempt);

  ConsoleOptions options_;
  std::size_t jobs_;
  std::size_t done_ = 0;
  std::size_t not_good_ = 0;
  bool progress_shown_ = false;
};

}  // namespace strata::cli::jobs
