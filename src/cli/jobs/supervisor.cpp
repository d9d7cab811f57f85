#include "cli/jobs/supervisor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/jobs/file_text.hpp"
#include "cli/output_relay.hpp"
#include "cli/program_start.hpp"
#include "cli/program_watch.hpp"
#include "diag/python_hook.hpp"
#include "diag/report_text.hpp"
#include "diag/tree_report.hpp"
#include "os/spawn.hpp"
#include "strata/error.hpp"

namespace strata::cli::jobs {
namespace {

using namespace std::chrono_literals;

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
/// What may take a moment to end after the program has.
constexpr std::chrono::milliseconds kGraceAfterEnd = 1s;
/// Of the report, so that a machine that is short of everything still gets one.
constexpr std::chrono::milliseconds kReportLimit = 4s;
/// Without a byte written to the file of the output.
constexpr std::chrono::milliseconds kPatienceWithFile = 10s;

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

nlohmann::json to_json(const JobEnd& end) {
  return {{"cause", static_cast<int>(end.cause)},
          {"status", {static_cast<int>(end.status.kind), end.status.value}},
          {"error", end.error},
          {"seconds", end.seconds},
          {"cpu_seconds", end.cpu_seconds},
          {"resident_kib", end.resident_kib},
          {"pid", end.pid},
          {"descendants", end.descendants},
          {"report", end.report},
          {"report_json", end.report_json},
          {"left", end.left},
          {"stuck", end.stuck}};
}

/// Words, each with a zero byte behind it: names and values have any other bytes.
JobRequest request_from_text(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\0', begin);
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const auto command = words.begin() + 4;
  const auto environment = command + std::stol(words.at(3));
  return {.command = {command, environment},
          .directory = words.at(0),
          .environment = {environment, words.end()},
          .timeout = std::stod(words.at(1)),
          .grace = std::stod(words.at(2))};
}

/// From now on ours is the job's: where its program is looked for, and what it inherits.
void adopt_environment(const std::vector<std::string>& environment) {
  ::clearenv();
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos && equals > 0)
      (void)::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  }
}

/// One job, from when its program has been started.
class Supervision {
 public:
  Supervision(const JobRequest& request, ProgramWatch watch, OutputRelay& output)
      : request_(request), watch_(std::move(watch)), output_(output) {
    end_.pid = watch_.pid();
  }

  JobEnd run() {
    const os::Deadline deadline =
        request_.timeout > 0 ? os::Deadline::after(std::chrono::duration<double>(request_.timeout))
                             : os::Deadline::never();
    const std::array waits = {watch_.pidfd(), kOrderFd};
    for (;;) {
      watch_.wait_for(waits, deadline);
      if (const auto status = watch_.ended()) {
        end_by_itself(*status);
        break;
      }
      take_orders();
      if (order_ || watch_.told_to_end()) {
        const bool silent = order_ && *order_ != Order::explain_and_end;
        end_by_force(order_ ? JobEnd::Cause::told : JobEnd::Cause::signal,
                     silent ? Explain::no : Explain::yes);
        break;
      }
      if (deadline.passed()) {
        end_by_force(JobEnd::Cause::timeout, Explain::yes);
        break;
      }
    }
    const bool all = output_.finish(kPatienceWithFile);
    if (output_.error() != 0) {
      end_.error = fmt::format("its output could not be kept: {}", std::strerror(output_.error()));
    } else if (!all) {
      end_.error = "the end of its output could not be kept";
    }
    rusage usage{};
    (void)::getrusage(RUSAGE_CHILDREN, &usage);
    end_.cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
    end_.resident_kib = usage.ru_maxrss;
    return std::move(end_);
  }

 private:
  enum class Explain : std::uint8_t { no, yes };

  [[nodiscard]] double seconds_since_start() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  void end_by_itself(const os::ExitStatus& status) {
    end_.seconds = seconds_since_start();
    end_.status = status;
    for (const Leftover& process : watch_.leftovers_after(kGraceAfterEnd))
      end_.left.push_back(fmt::format("{} ({})", process.pid, process.name));
    if (!end_.left.empty()) end_all();
  }

  void end_by_force(JobEnd::Cause cause, Explain explain) {
    end_.cause = cause;
    end_.seconds = seconds_since_start();
    if (explain == Explain::yes) take_report();
    output_.drain();  // All that was written up to here is in the file before anybody is ended.
    watch_.begin_to_end();
    end_all();
    if (const auto status = watch_.ended()) end_.status = *status;
  }

  void take_report() {
    diag::CollectOptions collect;
    collect.limit = kReportLimit;
    const diag::TreeReport report = diag::collect_below(::getpid(), collect);
    for (const diag::ProcessReport& process : report.processes) {
      if (process.pid != end_.pid) end_.descendants.push_back(process.pid);
    }
    end_.report = diag::to_text(report);
    end_.report_json = diag::dump(diag::to_json(report));
  }

  void end_all() {
    const auto grace = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::duration<double>(request_.grace));
    const std::vector<Leftover> stuck = watch_.end_all(grace, [this] {
      take_orders();
      return order_ == Order::kill;
    });
    for (const Leftover& process : stuck)
      end_.stuck.push_back(stuck_text(process));
  }

  /// The last one counts; that nobody is left to give any is one, too.
  void take_orders() {
    char order = 0;
    for (;;) {
      const ssize_t got = ::read(kOrderFd, &order, 1);
      if (got < 0) return;
      order_ = got == 0 ? Order::kill : static_cast<Order>(order);
      if (got == 0) return;
    }
  }

  const JobRequest& request_;
  ProgramWatch watch_;
  OutputRelay& output_;
  std::optional<Order> order_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  JobEnd end_;
};

JobEnd not_started(std::string why) {
  JobEnd end;
  end.cause = JobEnd::Cause::not_started;
  end.error = std::move(why);
  return end;
}

JobEnd run_job(const JobRequest& request) {
  adopt_environment(request.environment);
  if (!request.directory.empty() && ::chdir(request.directory.c_str()) != 0) {
    return not_started(fmt::format("its working directory '{}' can't be entered: {}",
                                   request.directory, std::strerror(errno)));
  }
  const diag::PythonHook hook;
  std::vector<std::string> environment = os::current_environment();
  hook.add_to(environment);
  OutputRelay output(kOutputFd);
  os::UniqueFd signals = signals_as_descriptor(kSignals);
  adopt_orphans();
  try {
    os::ChildProcess program = start_program(request.command, std::move(environment),
                                             {{STDIN_FILENO, STDIN_FILENO},
                                              {output.write_end(), STDOUT_FILENO},
                                              {output.write_end(), STDERR_FILENO}},
                                             Group::its_own);
    output.close_write_end();
    output.start();
    ProgramWatch watch(std::move(program), std::move(signals), Group::its_own, SIGTERM);
    return Supervision(request, std::move(watch), output).run();
  } catch (const NotStarted& why) {
    return not_started(why.what());
  }
}

/// Where there is no room for the report, the rest is better than nothing.
void write_result(JobEnd end) {
  try {
    return write_file(kResultFd, diag::dump(to_json(end)));
  } catch (const SystemError& error) {
    end.report = fmt::format("the report could not be kept: {}\n", error.what());
    end.report_json.clear();
  }
  (void)!::ftruncate(kResultFd, 0);
  (void)::lseek(kResultFd, 0, SEEK_SET);
  write_file(kResultFd, diag::dump(to_json(end)));
}

}  // namespace

std::string to_text(const JobRequest& request) {
  std::string text;
  const auto add = [&](const std::string& word) { text.append(word).push_back('\0'); };
  add(request.directory);
  add(fmt::format("{}", request.timeout));
  add(fmt::format("{}", request.grace));
  add(fmt::format("{}", request.command.size()));
  std::ranges::for_each(request.command, add);
  std::ranges::for_each(request.environment, add);
  return text;
}

JobEnd end_from_text(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  JobEnd end;
  end.cause = static_cast<JobEnd::Cause>(json.at("cause").get<int>());
  end.status.kind = static_cast<os::ExitStatus::Kind>(json.at("status").at(0).get<int>());
  end.status.value = json.at("status").at(1);
  end.error = json.at("error");
  end.seconds = json.at("seconds");
  end.cpu_seconds = json.at("cpu_seconds");
  end.resident_kib = json.at("resident_kib");
  end.pid = json.at("pid");
  end.descendants = json.at("descendants").get<std::vector<pid_t>>();
  end.report = json.at("report");
  end.report_json = json.at("report_json");
  end.left = json.at("left").get<std::vector<std::string>>();
  end.stuck = json.at("stuck").get<std::vector<std::string>>();
  return end;
}

int run_supervisor() {
  outlive_file_size_limit();
  for (const int fd : {kRequestFd, kResultFd, kOutputFd, kOrderFd}) {
    if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return 2;  // Somebody else has started us.
  }
  write_result(run_job(request_from_text(read_file(kRequestFd))));
  return 0;
}

}  // namespace strata::cli::jobs
