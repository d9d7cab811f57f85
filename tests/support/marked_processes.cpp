#include "support/marked_processes.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

namespace strata::test {
namespace {

namespace fs = std::filesystem;

/// What can be read of a file in /proc; the process may be gone by now or in the middle of this.
std::string content_of(const fs::path& path) {
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  std::array<char, 16'384> block{};
  while (true) {
    const ssize_t got = ::read(fd, block.data(), block.size());
    if (got <= 0) break;
    text.append(block.data(), static_cast<std::size_t>(got));
  }
  ::close(fd);
  return text;
}

std::optional<pid_t> number_in(const fs::path& name) {
  const std::string text = name.filename().string();
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return pid;
}

/// Whether the NUL-separated list has that entry.
bool has_entry(const std::string& list, const std::string& entry) {
  std::size_t at = 0;
  while (at < list.size()) {
    const std::size_t end = std::min(list.find('\0', at), list.size());
    if (list.compare(at, end - at, entry) == 0) return true;
    at = end + 1;
  }
  return false;
}

MarkedProcess describe(pid_t pid, const fs::path& folder) {
  MarkedProcess process{.pid = pid};
  const std::string stat = content_of(folder / "stat");
  if (const std::size_t paren = stat.rfind(')'); paren != std::string::npos) {
    char state = '?';
    int parent = 0;
    if (std::sscanf(stat.c_str() + paren + 1, " %c %d", &state, &parent) == 2) {
      process.state = state;
      process.parent = parent;
    }
  }
  process.command = content_of(folder / "cmdline");
  for (char& c : process.command)
    if (c == '\0') c = ' ';
  return process;
}

}  // namespace

std::string new_mark() {
  static std::atomic<int> counter{0};
  return std::to_string(::getpid()) + "-" + std::to_string(counter++) + "-" +
         std::to_string(std::chrono::steady_clock::now().time_since_epoch().count());
}

const std::string& mark_children() {
  static const std::string mark = [] {
    std::string made = new_mark();
    ::setenv(kMarkVariable, made.c_str(), 1);
    return made;
  }();
  return mark;
}

std::vector<MarkedProcess> marked_processes(const std::string& mark) {
  std::vector<MarkedProcess> found;
  const std::string entry = std::string(kMarkVariable) + "=" + mark;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const auto pid = number_in(it->path());
    if (!pid || *pid == ::getpid()) continue;
    if (!has_entry(content_of(it->path() / "environ"), entry)) continue;
    found.push_back(describe(*pid, it->path()));
  }
  return found;
}

std::string to_string(const std::vector<MarkedProcess>& processes) {
  std::string text;
  for (const MarkedProcess& process : processes) {
    text += "pid " + std::to_string(process.pid) + ", parent " + std::to_string(process.parent) +
            ", state " + process.state + ": " + process.command + "\n";
  }
  return text;
}

void kill_marked(const std::string& mark) {
  // Again, since one that is about to start another may have been missed.
  for (int round = 0; round < 10; ++round) {
    const auto left = marked_processes(mark);
    if (left.empty()) return;
    for (const MarkedProcess& process : left)
      ::kill(process.pid, SIGKILL);
    ::usleep(2000);
  }
}

std::chrono::nanoseconds cpu_time_of(const std::vector<pid_t>& pids) {
  std::chrono::nanoseconds sum{0};
  for (const pid_t pid : pids) {
    std::error_code error;
    fs::directory_iterator it("/proc/" + std::to_string(pid) + "/task", error);
    for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
      // Its first number: nanoseconds on a CPU.
      const std::string text = content_of(it->path() / "schedstat");
      sum += std::chrono::nanoseconds(std::strtoll(text.c_str(), nullptr, 10));
    }
  }
  return sum;
}

}  // namespace strata::test
