#include "cli/jobs/session.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <utility>

#include "os/spawn.hpp"
#include "os/system_error.hpp"
#include "strata/error.hpp"

namespace strata::cli::jobs {
namespace {

using namespace std::chrono_literals;

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  (void)::localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts)};
}

/// "{devices}" becomes the ids.
std::string with_devices(std::string word, const std::string& ids) {
  constexpr std::string_view kPlace = "{devices}";
  for (std::size_t at = 0; (at = word.find(kPlace, at)) != std::string::npos; at += ids.size())
    word.replace(at, kPlace.size(), ids);
  return word;
}

/// What tells a job its devices, also in ctest's own way.
std::vector<EnvironmentChange> device_variables(const Job& job, const std::vector<int>& devices) {
  std::vector<EnvironmentChange> changes = {{"STRATA_DEVICES", "set", ids_text(devices)}};
  if (job.device_groups.empty()) return changes;
  changes.push_back(
      {"CTEST_RESOURCE_GROUP_COUNT", "set", std::to_string(job.device_groups.size())});
  std::size_t next = 0;
  for (std::size_t group = 0; group < job.device_groups.size(); ++group) {
    const std::string name = fmt::format("CTEST_RESOURCE_GROUP_{}", group);
    std::string ids;
    for (unsigned i = 0; i < job.device_groups[group] && next < devices.size(); ++i, ++next)
      ids += fmt::format("{}id:{},slots:1", i == 0 ? "" : ";", devices[next]);
    changes.push_back({name, "set", ids.empty() ? "" : "devices"});
    if (!ids.empty()) changes.push_back({name + "_DEVICES", "set", ids});
  }
  return changes;
}

/// Empty if it has all its files.
std::string missing_file(const Job& job) {
  for (const std::string& path : job.required_files) {
    const bool absolute = path.starts_with('/');
    std::string whole = absolute || job.directory.empty() ? path : job.directory + "/" + path;
    if (::access(whole.c_str(), F_OK) != 0) return whole;
  }
  return "";
}

JobEnd not_started(std::string why) {
  JobEnd end;
  end.cause = JobEnd::Cause::not_started;
  end.error = std::move(why);
  return end;
}

}  // namespace

Session::Session(const std::vector<Job>& jobs, const SessionOptions& options, Console& console,
                 os::UniqueFd signals)
    : jobs_(jobs),
      options_(options),
      console_(console),
      signals_(std::move(signals)),
      plan_(jobs, options.slots, options.devices),
      deadline_(options.session_timeout
                    ? os::Deadline::after(std::chrono::duration<double>(*options.session_timeout))
                    : os::Deadline::never()) {}

double Session::now() const {
  return std::chrono::duration<double>(os::Deadline::Clock::now() - start_).count();
}

SessionResult Session::run() {
  result_.began = time_of_day();
  result_.jobs.resize(jobs_.size());
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    if (jobs_[i].disabled) finish(i, Outcome::disabled, "");
  }
  for (;;) {
    if (stopped_.empty()) {
      settle_unreachable();
      start_what_can_be();
    }
    if (running_.empty() && (!stopped_.empty() || plan_.waiting() == 0)) break;
    wait();
    take_signals();
    take_ended();
    check_deadlines();
  }
  settle_what_waits();
  result_.seconds = now();
  return std::move(result_);
}

/// Once no more is started: one that should have been tried again is what it was.
void Session::settle_what_waits() {
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const JobResult& of = result_.jobs[i];
    if (of.outcome != Outcome::not_run || !of.reason.empty()) continue;
    if (of.attempts.empty()) {
      finish(i, Outcome::not_run, stopped_);
    } else {
      finish(i, of.attempts.back().outcome, of.attempts.back().reason);
    }
  }
}

/// That one can't be started may mean the same of others.
void Session::settle_unreachable() {
  while (auto unreachable = plan_.unreachable())
    finish(unreachable->job, Outcome::not_run, std::move(unreachable->why));
}

void Session::start_what_can_be() {
  while (stopped_.empty()) {
    const auto next = plan_.next();
    if (!next) return;
    start(*next);
    settle_unreachable();
  }
}

void Session::start(const Plan::Start& start) {
  const Job& job = jobs_[start.job];
  const double at = now();
  if (job.command.empty()) {
    return ended(start, at, not_started("it has no command: its program was not found"));
  }
  if (const std::string path = missing_file(job); !path.empty()) {
    return ended(start, at,
                 not_started(fmt::format("there is no file '{}', which it needs", path)));
  }
  try {
    JobRequest request{.command = job.command,
                       .directory = job.directory,
                       .environment = {},
                       .timeout = job.timeout.value_or(options_.timeout),
                       .grace = options_.grace};
    std::vector<std::string> environment = os::current_environment();
    if (options_.devices) {
      const std::string ids = ids_text(start.devices);
      for (std::string& word : request.command)
        word = with_devices(std::move(word), ids);
      Job changes;
      changes.environment = device_variables(job, start.devices);
      environment = environment_of(changes, std::move(environment));
    }
    request.environment = environment_of(job, std::move(environment));
    running_.push_back(Running{start, at, JobProcess(request, options_.patience)});
  } catch (const Error& error) {
    ended(start, at, not_started(error.what()));
  }
}

void Session::wait() {
  std::vector<pollfd> waits;
  waits.reserve(running_.size() + 1);
  waits.push_back({.fd = signals_.get(), .events = POLLIN, .revents = 0});
  std::vector<std::string> names;
  names.reserve(running_.size());
  // A new look at the time for whoever watches, and in any case now and then.
  os::Deadline deadline = os::earlier(deadline_, os::Deadline::after(1s));
  for (const Running& one : running_) {
    waits.push_back({.fd = one.process.pidfd(), .events = POLLIN, .revents = 0});
    names.push_back(jobs_[one.start.job].name);
    deadline = os::earlier(deadline, one.process.overdue_at());
  }
  console_.running(names, std::chrono::duration_cast<std::chrono::seconds>(
                              std::chrono::duration<double>(now())));
  if (::poll(waits.data(), waits.size(), deadline.poll_timeout_ms()) < 0 && errno != EINTR)
    os::throw_errno("wait for jobs");
}

void Session::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;  // What is of interest has a pidfd.
    if (result_.signal) {
      stop(Order::kill, stopped_);  // Somebody is in a hurry.
      continue;
    }
    result_.signal = signal;
    // Whoever presses Ctrl-C wants it to end; whoever sends SIGTERM may wonder why it has not.
    stop(signal == SIGINT || signal == SIGHUP ? Order::end : Order::explain_and_end,
         fmt::format("the session was ended by {}", os::signal_name(signal)));
  }
}

void Session::stop(Order order, std::string why) {
  if (stopped_ != why) console_.say(why);
  stopped_ = std::move(why);
  for (Running& one : running_)
    one.process.tell(order);
}

std::vector<pid_t> Session::others_than(const Running& one) const {
  std::vector<pid_t> pids;
  pids.reserve(running_.size());
  for (const Running& other : running_) {
    if (&other != &one) pids.push_back(other.process.pid());
  }
  return pids;
}

void Session::take_ended() {
  for (std::size_t i = 0; i < running_.size();) {
    std::optional<JobEnd> end = running_[i].process.taken(others_than(running_[i]));
    if (!end) {
      ++i;
      continue;
    }
    const Plan::Start start = std::move(running_[i].start);
    const double started_at = running_[i].started_at;
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    ended(start, started_at, std::move(*end));
  }
}

void Session::check_deadlines() {
  if (deadline_.passed() && !result_.timed_out) {
    result_.timed_out = true;
    stop(Order::explain_and_end,
         fmt::format("the session's time-out, {:g} s, has passed", *options_.session_timeout));
  }
  for (std::size_t i = 0; i < running_.size(); ++i) {
    running_[i].process.let_go_on();
    if (!running_[i].process.overdue_at().passed()) continue;
    JobEnd end = running_[i].process.end_by_force(others_than(running_[i]));
    const Plan::Start start = std::move(running_[i].start);
    const double started_at = running_[i].started_at;
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    return ended(start, started_at, std::move(end));
  }
}

void Session::ended(const Plan::Start& start, double started_at, JobEnd end) {
  plan_.ended(start, end.stuck.empty() ? Plan::Devices::free : Plan::Devices::lost);
  Attempt attempt = judge(jobs_[start.job].expectation, std::move(end));
  attempt.devices = start.devices;
  attempt.started_at = started_at;
  if (attempt.outcome == Outcome::ended && result_.timed_out) {
    attempt.outcome = Outcome::hung;
    attempt.reason = "it had not ended at the session's time-out";
  }
  JobResult& job = result_.jobs[start.job];
  const std::size_t number = job.attempts.size() + 1;
  const bool good = is_good(attempt.outcome);
  const bool again = !good && stopped_.empty() && number <= options_.retries;
  console_.attempt(jobs_[start.job], attempt, number,
                   again ? Console::Next::retried : Console::Next::done);
  if (good && options_.kept == SessionOptions::Outputs::of_not_good) attempt.end.output.clear();
  const Outcome outcome = attempt.outcome;
  std::string reason = attempt.reason;
  job.attempts.push_back(std::move(attempt));
  if (again) {
    plan_.again(start.job);
  } else {
    finish(start.job, outcome, std::move(reason));
  }
}

/// The result of a job is known.
void Session::finish(std::size_t job, Outcome outcome, std::string reason) {
  JobResult& of = result_.jobs[job];
  of.outcome = outcome;
  of.reason = std::move(reason);
  if (of.attempts.empty()) console_.without_attempt(jobs_[job], outcome, of.reason);
  plan_.finished(job, outcome);
  if (!is_good(outcome) && stopped_.empty() &&
      options_.after_failure == SessionOptions::AfterFailure::stop) {
    stop(Order::end, fmt::format("the session was ended after '{}'", jobs_[job].name));
  }
}

}  // namespace strata::cli::jobs
