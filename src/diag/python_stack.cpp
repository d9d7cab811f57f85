#include "diag/python_stack.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>

#include "diag/python_hook.hpp"
#include "diag/thread_look.hpp"
#include "os/child_process.hpp"
#include "os/procfs.hpp"
#include "os/spawn.hpp"
#include "os/unique_fd.hpp"
#include "strata/error.hpp"

namespace strata::diag {
namespace {

/// The value of a line "NAME:   value" of a status file.
std::string line_of(const std::string& status, std::string_view name) {
  std::istringstream lines(status);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    const std::size_t begin = line.find_first_not_of(" \t", name.size() + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

bool has_signal(const std::string& status, std::string_view set, int signal) {
  std::uint64_t bits = 0;
  const std::string text = line_of(status, set);
  std::from_chars(text.data(), text.data() + text.size(), bits, 16);
  return (bits >> (signal - 1) & 1) != 0;
}

std::string status_of(pid_t pid) {
  return os::read_small_file(fmt::format("/proc/{}/status", pid)).value_or("");
}

/// The file of the hook in a process.
struct Report {
  os::UniqueFd file;
  int signal = 0;
};

std::optional<Report> find_report(pid_t pid) {
  const std::string name = std::string("/memfd:") + kPythonReportName;
  for (const os::OpenDescriptor& open : os::open_descriptors(pid)) {
    if (!open.target.starts_with(name)) continue;
    Report report;
    report.file.reset(
        ::open(fmt::format("/proc/{}/fd/{}", pid, open.fd).c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 128> head{};
    if (!report.file || ::pread(report.file.get(), head.data(), head.size() - 1, 0) <= 0) continue;
    int owner = 0;
    if (std::sscanf(head.data(), "strata-python 1 pid=%d signal=%d", &owner, &report.signal) != 2) {
      continue;
    }
    const bool valid = report.signal >= SIGRTMIN && report.signal <= SIGRTMAX;
    if (valid && owner == os::own_number_of(pid)) return report;
  }
  return std::nullopt;
}

/// Whether no thread is in the handler of a signal, which is blocked there, nor is it pending.
bool is_handled(pid_t pid, int signal) {
  if (has_signal(status_of(pid), "ShdPnd", signal)) return false;
  for (const pid_t thread : threads_of(pid)) {
    const auto status =
        os::read_small_file(fmt::format("/proc/{}/task/{}/status", pid, thread)).value_or("");
    if (has_signal(status, "SigBlk", signal) || has_signal(status, "SigPnd", signal)) return false;
  }
  return true;
}

std::string read_from(int file, off_t offset) {
  std::string text;
  std::array<char, 4096> part;
  for (;;) {
    const ssize_t got =
        ::pread(file, part.data(), part.size(), offset + static_cast<off_t>(text.size()));
    if (got <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

void pause_briefly() {
  const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
  ::nanosleep(&pause, nullptr);
}

void ask_faulthandler(pid_t pid, const Report& report, os::Deadline deadline,
                      PythonStacks& stacks) {
  const os::UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));
  // Looked at again, now that the pidfd holds on to the process: it is the same one.
  const std::string status = status_of(pid);
  const bool catches = has_signal(status, "SigCgt", report.signal);
  if (!pidfd || !catches || !find_report(pid)) {
    stacks.note = "it does not take our signal any more";
    return;
  }
  if (line_of(status, "State").starts_with('T') || line_of(status, "State").starts_with('t')) {
    stacks.note = "it is stopped, so faulthandler can't answer";
    return;
  }
  const off_t before = ::lseek(report.file.get(), 0, SEEK_END);
  if (::syscall(SYS_pidfd_send_signal, pidfd.get(), report.signal, nullptr, 0U) != 0) {
    stacks.note = "it ended, or may not be sent a signal";
    return;
  }
  // The text grows in many small steps, and is whole when the handler has returned.
  const os::Deadline patience = os::earlier(deadline, os::Deadline::after(std::chrono::seconds(2)));
  for (;;) {
    const bool done = is_handled(pid, report.signal);
    stacks.text = read_from(report.file.get(), before);
    if (done && !stacks.text.empty()) return;
    if (patience.passed()) break;
    pause_briefly();
  }
  stacks.note = stacks.text.empty() ? "faulthandler did not answer in time: all threads block its "
                                      "signal, or none gets a CPU"
                                    : "faulthandler did not come to its end in time";
}

/// Whether it runs CPython: as its program or as a library in it.
bool runs_python(pid_t pid) {
  const auto maps = os::read_small_file(fmt::format("/proc/{}/maps", pid)).value_or("");
  std::istringstream lines(maps);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t slash = line.rfind('/');
    if (slash == std::string::npos) continue;
    const std::string file = line.substr(slash + 1);
    if (file.starts_with("libpython3") || file.starts_with("python3")) return true;
  }
  return false;
}

std::string find_py_spy() {
  const char* const variable = std::getenv("PATH");
  std::istringstream folders(variable != nullptr ? variable : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string path = folder + "/py-spy";
    if (!folder.empty() && ::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

/// What a program prints, as far as it does in time.
std::string output_of(const std::vector<std::string>& command, os::Deadline deadline) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return "";
  const os::UniqueFd read_end(ends[0]);
  os::UniqueFd write_end(ends[1]);
  const os::UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  os::ChildProcess child = os::spawn({.path = command.front(),
                                      .argv = command,
                                      .envp = os::current_environment(),
                                      .descriptors = {{nothing.get(), STDIN_FILENO},
                                                      {write_end.get(), STDOUT_FILENO},
                                                      {nothing.get(), STDERR_FILENO}}});
  write_end.reset();
  std::string text;
  std::array<char, 4096> part;
  for (;;) {
    pollfd wait{.fd = read_end.get(), .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, deadline.poll_timeout_ms()) == 0) break;
    const ssize_t got = ::read(read_end.get(), part.data(), part.size());
    if (got == 0) break;
    if (got > 0) text.append(part.data(), static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  (void)child.send(SIGKILL);
  (void)child.wait(os::Deadline::never());
  return text;
}

}  // namespace

std::map<std::uint64_t, std::vector<PythonFrame>> python_frames(const std::string& text) {
  // Current thread 0x00007f00 (most recent call first):
  //   File "a.py", line 3 in f
  std::map<std::uint64_t, std::vector<PythonFrame>> stacks;
  std::vector<PythonFrame>* stack = nullptr;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kFile = "  File \"";
    constexpr std::string_view kLine = "\", line ";
    if (line.starts_with("Thread 0x") || line.starts_with("Current thread 0x")) {
      std::uint64_t thread = 0;
      const char* const digits = line.data() + line.find("0x") + 2;
      std::from_chars(digits, line.data() + line.size(), thread, 16);
      stack = &stacks[thread];
    } else if (const std::size_t number = line.rfind(kLine);
               stack != nullptr && line.starts_with(kFile) && number != std::string::npos) {
      PythonFrame frame;
      frame.file = line.substr(kFile.size(), number - kFile.size());
      const std::string rest = line.substr(number + kLine.size());
      std::from_chars(rest.data(), rest.data() + rest.size(), frame.line);
      if (const std::size_t in = rest.find(" in "); in != std::string::npos) {
        frame.function = rest.substr(in + 4);
      }
      stack->push_back(std::move(frame));
    }
  }
  return stacks;
}

PythonStacks python_stacks_of(pid_t pid, os::Deadline deadline) {
  PythonStacks stacks;
  if (const auto report = find_report(pid)) {
    stacks.is_python = true;
    ask_faulthandler(pid, *report, deadline, stacks);
    if (!stacks.text.empty()) return stacks;
  } else if (!runs_python(pid)) {
    return stacks;
  }
  stacks.is_python = true;
  const std::string py_spy = find_py_spy();
  if (!py_spy.empty()) {
    try {
      stacks.text = output_of({py_spy, "dump", "--pid", std::to_string(pid)},
                              os::earlier(deadline, os::Deadline::after(std::chrono::seconds(3))));
    } catch (const Error&) {
      // As if it were not there.
    }
  }
  if (stacks.text.empty() && stacks.note.empty()) {
    stacks.note =
        "not known: it was not started by `strata exec`, which would let it tell, and py-spy, "
        "which "
        "could look from outside, " +
        std::string(py_spy.empty() ? "is not installed" : "found none");
  }
  return stacks;
}

}  // namespace strata::diag
