// How long a Worker's processes take to come and go, and what they use while they idle.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "measures.hpp"
#include "os/child_process.hpp"
#include "os/procfs.hpp"
#include "os/spawn.hpp"
#include "os/system_error.hpp"
#include "strata/worker_error.hpp"

namespace strata::bench {
namespace {

using namespace std::chrono_literals;

constexpr double kMs = 1e6;

std::vector<pid_t> tree() {
  std::vector<pid_t> pids = os::descendants_of(getpid());
  pids.push_back(getpid());
  return pids;
}

/// Time on a CPU of all threads of a process, by the scheduler's own account.
double cpu_ns(pid_t pid) {
  double sum = 0;
  std::error_code gone;
  const std::filesystem::path threads = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& thread : std::filesystem::directory_iterator(threads, gone)) {
    if (const auto text = os::read_small_file((thread.path() / "schedstat").string()))
      sum += std::strtod(text->c_str(), nullptr);
  }
  return sum;
}

double cpu_ns_of_tree() {
  double sum = 0;
  for (const pid_t pid : tree())
    sum += cpu_ns(pid);
  return sum;
}

/// Waits until all these processes have ended.
void wait_for_end(const std::vector<os::UniqueFd>& pidfds) {
  for (const os::UniqueFd& pidfd : pidfds) {
    pollfd end{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
    if (poll(&end, 1, 30'000) != 1) throw std::runtime_error("a process is left over");
  }
}

}  // namespace

Values measure_start(std::string_view kind, unsigned workers, double budget_ns) {
  std::vector<double> close;
  const auto start = [&] {
    const double begin = now_ns();
    Worker worker(options_for(kind, workers));
    worker.init();
    const double ready = now_ns();
    worker.close();
    close.push_back((now_ns() - ready) / kMs);
    return (ready - begin) / kMs;
  };
  const double first = start();
  close.clear();
  Values values;
  values[""] = summary(sample_for(budget_ns, 5, start), "ms");
  values["close"] = summary(close, "ms");
  values["first"] = summary({first}, "ms");
  return values;
}

Values measure_idle(unsigned workers) {
  constexpr int kTasks = 20'000;
  constexpr auto kIdle = 10s;
  Worker worker(options_for("chips", workers));
  const CallableId nothing = worker.add(empty_task());
  worker.init();
  const KindId chips = worker.any_chip();
  const auto burst = [&] {
    return timed([&] {
             (void)worker.run([&](Orchestration& run) {
               for (int i = 0; i < kTasks; ++i)
                 run.submit(Call(nothing), on(chips));
             });
           }) /
           kTasks / 1000;
  };
  for (int i = 0; i < 3; ++i)
    (void)burst();
  std::vector<double> before;
  for (int i = 0; i < 5; ++i)
    before.push_back(burst());
  std::this_thread::sleep_for(100ms);
  const double cpu_before = cpu_ns_of_tree();
  const double begin = now_ns();
  std::this_thread::sleep_for(kIdle);
  const double cpu = (cpu_ns_of_tree() - cpu_before) / (now_ns() - begin) * 100;
  const double after = burst();
  worker.close();
  return {{"cpu", summary({cpu}, "% CPU")},
          {"burst-before", summary(before, "us/task")},
          {"burst-after", summary({after}, "us/task")}};
}

Values measure_memory(unsigned workers) {
  constexpr double kMb = 1e6;
  Worker worker(options_for("chips", workers));
  const CallableId nothing = worker.add(empty_task());
  worker.init();
  std::vector<double> fresh, used;
  const auto measure = [&](std::vector<double>& into) {
    for (const ProcessStatus& process : worker.processes()) {
      if (const auto memory = os::memory_of(process.pid))
        into.push_back(static_cast<double>(memory->private_resident) / kMb);
    }
  };
  measure(fresh);
  for (unsigned chip = 0; chip < workers; ++chip) {
    (void)worker.run([&](Orchestration& run) {
      for (int i = 0; i < 1000; ++i)
        run.submit(Call(nothing), on(worker.chip(chip)));
    });
  }
  measure(used);
  double all = 0;
  for (const pid_t pid : tree()) {
    if (const auto memory = os::memory_of(pid))
      all += static_cast<double>(memory->private_resident) / kMb;
  }
  worker.close();
  return {{"chip", summary(used, "MB")},
          {"chip-fresh", summary(fresh, "MB")},
          {"tree", summary({all}, "MB")}};
}

Values measure_death_of_child(unsigned workers, double budget_ns) {
  Worker worker(options_for("chips", workers));
  const CallableId sleep = worker.add(Callable::in_library(empty_task().library, "sleep_for_ever"));
  worker.init();
  const auto death = [&] {
    const auto status = [&] { return worker.processes().front(); };
    while (status().state != "ready")
      std::this_thread::sleep_for(1ms);  // The one before is being replaced.
    const Run run = worker.submit([&](Orchestration& orchestration) {
      orchestration.submit(Call(sleep), on(worker.chip(0)));
    });
    while (status().task.empty())
      std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(20ms);  // All is asleep.
    const int pid = status().pid;
    const double begin = now_ns();
    kill(pid, SIGKILL);
    try {
      run.result();
    } catch (const RunFailed&) {
      return (now_ns() - begin) / kMs;
    }
    throw std::runtime_error("the run did not fail");
  };
  const auto samples = sample_for(budget_ns, 5, death);
  worker.close();
  return {{"", summary(samples, "ms")}};
}

Values measure_death_of_root(unsigned workers, double budget_ns) {
  // Those left behind come to this process, and not to one that may not wait for them.
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) os::throw_errno("becoming a subreaper");
  const auto death = [&] {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) os::throw_errno("making a pipe");
    const os::UniqueFd read_end(ends[0]);
    os::UniqueFd write_end(ends[1]);
    os::ChildProcess root = os::spawn({.path = "/proc/self/exe",
                                       .argv = {"node", "root", std::to_string(workers)},
                                       .envp = os::current_environment(),
                                       .descriptors = {{write_end.get(), 1}, {2, 2}}});
    write_end.reset();
    char byte = 0;
    if (read(read_end.get(), &byte, 1) != 1) throw std::runtime_error("the root did not start");
    std::this_thread::sleep_for(50ms);
    std::vector<os::UniqueFd> pidfds;
    for (const pid_t pid : os::descendants_of(root.pid()))
      pidfds.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (pidfds.size() < workers) throw std::runtime_error("the root has too few workers");
    const double begin = now_ns();
    (void)root.send(SIGKILL);
    wait_for_end(pidfds);
    const double elapsed = now_ns() - begin;
    while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
    }
    return elapsed / kMs;
  };
  return {{"", summary(sample_for(budget_ns, 5, death), "ms")}};
}

void be_a_root(unsigned workers) {
  Worker worker(options_for("chips", workers));
  worker.init();
  const char byte = 'r';
  (void)!write(1, &byte, 1);
  for (;;)
    pause();
}

}  // namespace strata::bench
