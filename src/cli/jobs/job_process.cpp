#include "cli/jobs/job_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "cli/jobs/file_text.hpp"
#include "cli/leftovers.hpp"
#include "cli/program_watch.hpp"
#include "diag/report_text.hpp"
#include "diag/tree_report.hpp"
#include "os/procfs.hpp"
#include "os/spawn.hpp"
#include "os/system_error.hpp"

namespace strata::cli::jobs {
namespace {
using namespace std::chrono_literals;
}  // namespace

os::Deadline JobProcess::overdue_after(double seconds) const {
  return os::Deadline::after(std::chrono::duration<double>(seconds + patience_));
}

JobProcess::JobProcess(const JobRequest& request, double patience)
    : result_(make_unnamed_file()),
      output_(make_unnamed_file()),
      grace_(request.grace),
      patience_(patience) {
  const os::UniqueFd request_file = make_unnamed_file();
  write_file(request_file.get(), to_text(request));
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) os::throw_errno("make a pipe for orders");
  const os::UniqueFd orders(ends[0]);
  orders_.reset(ends[1]);
  const os::UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) os::throw_errno("open '/dev/null'");
  // Not in our group, which a whole `kill` may be meant for; and not killed together with us, since
  // it has to end its job then.
  supervisor_ = os::spawn({.path = "/proc/self/exe",
                           .argv = {"strata", "test-supervisor"},
                           .envp = os::current_environment(),
                           .descriptors = {{nothing.get(), STDIN_FILENO},
                                           {STDERR_FILENO, STDOUT_FILENO},
                                           {STDERR_FILENO, STDERR_FILENO},
                                           {request_file.get(), kRequestFd},
                                           {result_.get(), kResultFd},
                                           {output_.get(), kOutputFd},
                                           {orders.get(), kOrderFd}},
                           .own_process_group = true,
                           .die_with_parent = false});
  if (request.timeout > 0) {
    due_at_ = os::Deadline::after(std::chrono::duration<double>(request.timeout));
    overdue_at_ = overdue_after(request.timeout + request.grace);
  }
}

void JobProcess::tell(Order order) {
  const char byte = static_cast<char>(order);
  (void)!::write(orders_.get(), &byte, 1);  // That it has ended meanwhile is no matter.
  due_at_ = os::earlier(due_at_, os::Deadline::after(0s));
  let_go_on();
  overdue_at_ = os::earlier(overdue_at_, overdue_after(order == Order::kill ? 0 : grace_));
}

void JobProcess::let_go_on() const {
  if (!due_at_.passed()) return;
  // Only if it is stopped: a SIGCONT takes away the stop that a debugger, or a sanitizer at the end
  // of the process, waits for in one of its threads.
  const std::optional<os::ProcessInfo> now = os::read_process(pid());
  if (now && now->state == 'T') (void)supervisor_.send(SIGCONT);
}

std::optional<JobEnd> JobProcess::taken(const std::vector<pid_t>& others) {
  const std::optional<os::ExitStatus> status = supervisor_.try_wait();
  if (!status) return std::nullopt;
  try {
    if (status->clean() || status->kind == os::ExitStatus::Kind::unknown) {
      JobEnd end = end_from_text(read_file(result_.get()));
      end.output = read_file(output_.get());
      return end;
    }
  } catch (const std::exception&) {
    // It was killed before it could write all of it.
  }
  return lost("its supervisor has ended before it: " + status->to_string(), others);
}

JobEnd JobProcess::end_by_force(const std::vector<pid_t>& others) {
  const diag::TreeReport report = diag::collect(pid(), {});
  (void)supervisor_.send(SIGKILL);
  (void)supervisor_.wait(os::Deadline::after(10s));
  JobEnd end = lost("its supervisor did not end it", others);
  end.cause = JobEnd::Cause::timeout;
  end.pid = pid();
  for (const diag::ProcessReport& process : report.processes) {
    if (process.pid != pid()) end.descendants.push_back(process.pid);
  }
  end.report = diag::to_text(report);
  end.report_json = diag::dump(diag::to_json(report));
  return end;
}

/// What it leaves are children of this process now, and no one else's.
JobEnd JobProcess::lost(std::string why, const std::vector<pid_t>& others) const {
  JobEnd end;
  end.cause = JobEnd::Cause::lost;
  end.error = std::move(why);
  end.seconds = std::chrono::duration<double>(os::Deadline::Clock::now() - start_).count();
  for (const Leftover& process : end_leftovers(
           0ms, [] { return true; }, others))
    end.stuck.push_back(stuck_text(process));
  end.output = read_file(output_.get());
  return end;
}

}  // namespace strata::cli::jobs
