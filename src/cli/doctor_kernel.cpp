// Checks of the kernel's features, and of starting and ending processes.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cli/doctor_checks.hpp"
#include "os/cgroup.hpp"
#include "os/child_process.hpp"
#include "os/mapping.hpp"
#include "os/memfd.hpp"
#include "os/procfs.hpp"
#include "os/spawn.hpp"

namespace strata::cli {
namespace {

using namespace std::chrono_literals;

constexpr const char* kNeedsKernel =
    "Linux 5.11 or later is needed; in a container, its seccomp filter must let this call through";

std::string why() { return std::strerror(errno); }

Finding result(std::string subject, bool works, std::string_view purpose,
               const std::string& error) {
  if (works) return {std::move(subject), Health::ok, std::string(purpose), ""};
  return {std::move(subject), Health::missing, fmt::format("{}: {}", purpose, error), kNeedsKernel};
}

Finding check_version() {
  utsname name{};
  ::uname(&name);
  int major = 0;
  int minor = 0;
  (void)std::sscanf(name.release, "%d.%d", &major, &minor);
  const std::string found = fmt::format("{} {} on {}", name.sysname, name.release, name.machine);
  if (std::string_view(name.machine) != "x86_64") {
    return {"kernel", Health::missing, found, "Strata's processes need x86-64"};
  }
  if (major > 5 || (major == 5 && minor >= 11)) return {"kernel", Health::ok, found, ""};
  return {"kernel", Health::missing, found, "Linux 5.11 or later is needed"};
}

Finding check_memory_files() {
  constexpr const char* kPurpose = "sealed memory of a descriptor, shared between processes";
  try {
    const os::UniqueFd fd = os::make_memfd("strata-doctor", 4096);
    (void)os::Mapping::shared(fd.get(), 4096);
    return result("memfd", true, std::string(kPurpose) + "; /dev/shm is not used", "");
  } catch (const std::exception& error) {
    return result("memfd", false, kPurpose, error.what());
  }
}

/// A wait between processes, for a value that is not there: must come back at once.
Finding check_futex() {
  std::atomic<std::uint32_t> word{1};
  const long rc = ::syscall(SYS_futex, &word, FUTEX_WAIT, 0, nullptr, nullptr, 0);
  return result("futex", rc == -1 && errno == EAGAIN, "sleeping until another process wakes it",
                why());
}

/// This program, as a child that says its version to nobody.
os::ChildProcess spawn_self() {
  os::UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  return os::spawn({.path = "/proc/self/exe",
                    .argv = {"strata", "--version"},
                    .envp = os::current_environment(),
                    .descriptors = {{null.get(), 0}, {null.get(), 1}, {null.get(), 2}}});
}

Finding check_spawn() {
  constexpr const char* kPurpose = "starting a program without a copy of this one (clone, pidfd)";
  try {
    const auto begin = std::chrono::steady_clock::now();
    os::ChildProcess child = spawn_self();
    const std::optional<os::ExitStatus> status = child.wait(os::Deadline::after(30s));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (!status) {
      (void)child.send(SIGKILL);
      return result("spawn", false, kPurpose, "the child did not end within 30 s");
    }
    if (!status->clean()) return result("spawn", false, kPurpose, status->to_string());
    return result("spawn", true, fmt::format("{}, in {:.1f} ms", kPurpose, took.count()), "");
  } catch (const std::exception& error) {
    return result("spawn", false, kPurpose, error.what());
  }
}

/// A child that somebody else waits for, as a program does that ignores SIGCHLD.
Finding check_exit_info() {
  constexpr const char* kSubject = "exit status";
  try {
    os::ChildProcess child = spawn_self();
    while (::waitpid(child.pid(), nullptr, 0) < 0 && errno == EINTR) {
    }
    const std::optional<os::ExitStatus> status = child.wait(os::Deadline::after(30s));
    if (status && status->clean()) {
      return {kSubject, Health::ok, "known also where the program takes it first", ""};
    }
  } catch (const std::exception&) {
    // check_spawn() tells of it.
  }
  return {kSubject, Health::warning,
          "not known where a program ignores SIGCHLD or waits for all children",
          "Linux 6.15 or later keeps it; such programs get 'ended, status unknown' in errors"};
}

Finding check_parent_death() {
  int signal = 0;
  const bool works = ::prctl(PR_GET_PDEATHSIG, &signal) == 0;
  return result("parent death", works, "the kernel ends workers whose parent has died", why());
}

Finding check_cgroup() {
  constexpr const char* kWhatElse =
      "workers always end; what their tasks start is found by the parent, if that survives";
  const std::optional<os::Cgroup> group = os::Cgroup::create("strata-doctor");
  if (!group) {
    return {"cgroup", Health::warning, fmt::format("no writable cgroup v2: {}", kWhatElse),
            "to have processes that tasks start ended in every case, run in a delegated cgroup: "
            "systemd-run --user --scope -p Delegate=yes PROGRAM"};
  }
  std::error_code ignored;
  if (!std::filesystem::exists(group->path() + "/cgroup.kill", ignored)) {
    return {"cgroup", Health::warning,
            fmt::format("{} is writable, but has no cgroup.kill: {}",
                        os::Cgroup::parent_directory(), kWhatElse),
            "Linux 5.14 or later has it"};
  }
  return {"cgroup", Health::ok,
          fmt::format("{} is writable: processes that tasks start end with their worker",
                      os::Cgroup::parent_directory()),
          ""};
}

Finding check_proc() {
  const bool works =
      os::read_process(::getpid()).has_value() && std::filesystem::exists("/proc/self/fd");
  if (works) return {"/proc", Health::ok, "mounted", ""};
  return {"/proc", Health::missing, "not mounted, or of another pid namespace",
          "mount -t proc proc /proc"};
}

}  // namespace

std::vector<Finding> check_kernel() {
  const os::UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  const std::string pidfd_error = why();
  // An empty range: nothing is closed.
  const bool close_range = ::syscall(SYS_close_range, ~0U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */) == 0;
  const std::string close_range_error = why();
  return {check_version(),
          result("pidfd", static_cast<bool>(pidfd), "a process by descriptor, not by number",
                 pidfd_error),
          result("close_range", close_range, "no descriptor gets into a worker by mistake",
                 close_range_error),
          check_memory_files(),
          check_futex(),
          check_proc()};
}

std::vector<Finding> check_processes() {
  return {check_spawn(), check_exit_info(), check_parent_death(), check_cgroup()};
}

}  // namespace strata::cli
