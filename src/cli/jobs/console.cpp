#include "cli/jobs/console.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string_view>

#include "cli/jobs/device_pool.hpp"
#include "cli/jobs/file_text.hpp"
#include "diag/report_text.hpp"

namespace strata::cli::jobs {
namespace {

std::string capitals(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

std::string whole_lines(std::string text) {
  if (!text.empty() && text.back() != '\n') text += '\n';
  return text;
}

/// "pid=12 descendants=[13, 14] after=1.0s"
std::string tree_text(const JobEnd& end) {
  return fmt::format("pid={} descendants=[{}] after={:.1f}s", end.pid,
                     fmt::join(end.descendants, ", "), end.seconds);
}

/// What is between two of these is not looked at for commands.
std::string stop_token() {
  std::random_device random;
  return fmt::format("strata-{:08x}{:08x}", random(), random());
}

/// What a command's text may not have in it.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '%' || c == '\r' || c == '\n') {
      result += fmt::format("%{:02X}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result;
}

void add_list(std::string& text, const char* what, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  text += what;
  for (const std::string& line : lines)
    text += "\n  " + diag::printable(line);
  text += '\n';
}

/// All that there is to say of an attempt but its output.
std::string facts_of(const Job& job, const Attempt& attempt) {
  std::string text =
      fmt::format("command: {}\n", diag::printable(fmt::format("{}", fmt::join(job.command, " "))));
  if (!job.directory.empty()) text += "in: " + diag::printable(job.directory) + "\n";
  if (!attempt.devices.empty()) text += "devices: " + ids_text(attempt.devices) + "\n";
  add_list(text, "it left these processes behind, which were ended:", attempt.end.left);
  add_list(text, "not ended:", attempt.end.stuck);
  if (!attempt.end.report.empty()) text += "\n" + attempt.end.report;
  return text;
}

}  // namespace

ConsoleOptions Console::usual_options(int fd) {
  ConsoleOptions options;
  options.fd = fd;
  options.terminal = ::isatty(fd) == 1;
  const char* const actions = std::getenv("GITHUB_ACTIONS");
  if (actions != nullptr && std::string_view(actions) == "true")
    options.style = ConsoleOptions::Style::github;
  return options;
}

void Console::print(const std::string& text) {
  write_file(options_.fd, (progress_shown_ ? "\r\x1b[K" : "") + text);
  progress_shown_ = false;
}

void Console::say(const std::string& text) { print("strata test: " + text + "\n"); }

void Console::running(const std::vector<std::string>& names, std::chrono::seconds since) {
  if (!options_.terminal) return;
  std::string text = fmt::format("[{}/{}] {} s", done_, jobs_, since.count());
  if (not_good_ > 0) text += fmt::format(", {} not good", not_good_);
  text += fmt::format(", running: {}", diag::printable(fmt::format("{}", fmt::join(names, ", "))));
  winsize size{};
  const bool known = ::ioctl(options_.fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  // One column less, or some terminals begin a new line.
  text.resize(std::min(text.size(), known ? size.ws_col - std::size_t{1} : std::size_t{79}));
  write_file(options_.fd, "\r\x1b[K" + text);
  progress_shown_ = true;
}

void Console::line(const Job& job, Outcome outcome, double seconds, const std::string& note) {
  const std::size_t width = std::to_string(jobs_).size();
  print(fmt::format("[{:>{}}/{}] {:<8} {:>7.2f} s  {}{}\n", done_, width, jobs_,
                    outcome == Outcome::passed ? "passed" : capitals(name_of(outcome)), seconds,
                    diag::printable(job.name), note));
}

void Console::group(const std::string& title, const std::string& body, const Attempt& attempt) {
  const std::string output = whole_lines(attempt.end.output);
  const std::string content = body + (output.empty() ? "\nno output\n" : "\noutput:\n" + output);
  if (options_.style == ConsoleOptions::Style::github) {
    const std::string token = stop_token();
    std::string text = fmt::format("::group::{}\n::stop-commands::{}\n{}::{}::\n::endgroup::\n",
                                   escaped(title), token, content, token);
    if (!is_good(attempt.outcome)) text += fmt::format("::error::{}\n", escaped(title));
    print(text);
  } else {
    print(fmt::format("---- {} ----\n{}---- end of {} ----\n", title, content, title));
  }
}

void Console::attempt(const Job& job, const Attempt& attempt, std::size_t number, Next next) {
  const bool good = is_good(attempt.outcome);
  if (next == Next::done) {
    ++done_;
    if (!good) ++not_good_;
  }
  std::string note;
  if (number > 1) note += fmt::format(", attempt {}", number);
  if (!attempt.reason.empty()) note += ": " + diag::printable(attempt.reason);
  if (next == Next::retried) note += "; it is tried again";
  if (good && !attempt.end.left.empty()) {
    note += diag::printable(fmt::format("; it left behind: {}", fmt::join(attempt.end.left, ", ")));
  }
  line(job, attempt.outcome, attempt.end.seconds, note);
  const bool wanted = options_.groups == ConsoleOptions::Groups::all ||
                      (options_.groups == ConsoleOptions::Groups::not_good && !good);
  if (!wanted) return;
  std::string title = capitals(name_of(attempt.outcome)) + " " + diag::printable(job.name);
  if (number > 1) title += fmt::format(", attempt {}", number);
  // A job that was ended with a report is explained like one that hung.
  if (!attempt.end.report.empty()) title += " " + tree_text(attempt.end);
  std::string body = facts_of(job, attempt);
  if (!attempt.reason.empty()) body = diag::printable(attempt.reason) + "\n" + body;
  group(title, body, attempt);
}

void Console::without_attempt(const Job& job, Outcome outcome, const std::string& reason) {
  ++done_;
  if (!is_good(outcome)) ++not_good_;
  line(job, outcome, 0, reason.empty() ? "" : ": " + diag::printable(reason));
}

void Console::summary(const std::vector<Job>& jobs, const SessionResult& result) {
  std::vector<std::size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::string text = "\n";
  const auto add = [&](std::size_t i) {
    text +=
        fmt::format("  {:>8.2f} s  {}\n", result.jobs[i].seconds(), diag::printable(jobs[i].name));
  };
  std::vector<std::size_t> slow = order;
  std::erase_if(slow, [&](std::size_t i) { return result.jobs[i].attempts.empty(); });
  std::ranges::stable_sort(slow, std::greater<>(),
                           [&](std::size_t i) { return result.jobs[i].seconds(); });
  slow.resize(std::min(slow.size(), options_.slowest));
  if (!slow.empty()) text += "slowest jobs:\n";
  std::ranges::for_each(slow, add);
  for (const Outcome outcome : {Outcome::skipped, Outcome::disabled, Outcome::not_run,
                                Outcome::ended, Outcome::failed, Outcome::hung}) {
    if (result.count(outcome) == 0) continue;
    text += fmt::format("{}:\n", name_of(outcome));
    for (const std::size_t i : order) {
      if (result.jobs[i].outcome != outcome) continue;
      text += "  " + diag::printable(jobs[i].name);
      if (!result.jobs[i].reason.empty()) text += ": " + diag::printable(result.jobs[i].reason);
      text += '\n';
    }
  }
  const auto flaky = std::ranges::count_if(result.jobs, &JobResult::flaky);
  if (flaky > 0) text += "passed after failures:\n";
  for (const std::size_t i : order) {
    if (!result.jobs[i].flaky()) continue;
    text += fmt::format("  {} (attempt {})\n", diag::printable(jobs[i].name),
                        result.jobs[i].attempts.size());
  }
  std::string counts;
  for (const Outcome outcome : {Outcome::passed, Outcome::failed, Outcome::hung, Outcome::ended,
                                Outcome::not_run, Outcome::skipped, Outcome::disabled}) {
    if (const std::size_t count = result.count(outcome); count > 0 || outcome == Outcome::passed)
      counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, name_of(outcome));
  }
  text += fmt::format("{} of {} jobs in {:.1f} s\n", counts, jobs.size(), result.seconds);
  print(text);
}

}  // namespace strata::cli::jobs
