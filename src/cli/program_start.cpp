#include "cli/program_start.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "os/procfs.hpp"
#include "os/system_error.hpp"

namespace strata::cli {

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* const variable = std::getenv("PATH");
  std::string_view path = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (;;) {
    const std::size_t end = path.find(':');
    const std::string folder(path.substr(0, end));
    std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
    if (end == std::string_view::npos) return "";
    path.remove_prefix(end + 1);
  }
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool in_foreground() {
  const os::UniqueFd terminal(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC));
  return terminal && ::tcgetpgrp(terminal.get()) == ::getpgrp();
}

os::UniqueFd signals_as_descriptor(std::span<const int> signals) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int signal : signals) {
    if (!is_ignored(signal)) sigaddset(&set, signal);
  }
  // An inherited "ignore" would have the kernel reap our children itself.
  (void)::signal(SIGCHLD, SIG_DFL);
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) os::throw_errno("block signals");
  os::UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) os::throw_errno("make a descriptor for signals");
  return fd;
}

std::vector<os::SpawnOptions::Descriptor> inherited_descriptors(
    std::vector<os::SpawnOptions::Descriptor> replaced) {
  std::vector<os::SpawnOptions::Descriptor> descriptors = std::move(replaced);
  const std::vector<os::SpawnOptions::Descriptor> given = descriptors;
  for (const os::OpenDescriptor& open : os::open_descriptors(::getpid())) {
    const int flags = ::fcntl(open.fd, F_GETFD);
    const bool taken =
        std::ranges::find(given, open.fd, &os::SpawnOptions::Descriptor::to) != given.end();
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0 && !taken) {
      descriptors.push_back({open.fd, open.fd});
    }
  }
  return descriptors;
}

}  // namespace strata::cli
