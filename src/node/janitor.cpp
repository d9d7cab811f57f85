#include "node/janitor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "node/child.hpp"
#include "node/reaper.hpp"
#include "os/cgroup.hpp"
#include "os/deadline.hpp"
#include "os/spawn.hpp"

namespace strata::node {

namespace {

using namespace std::chrono_literals;

constexpr const char* kOption = "--janitor";
constexpr int kSignFd = 3;
/// How long processes that were killed may take to go.
constexpr auto kPatience = 2s;
/// How long the Worker's process waits for a janitor that it has dismissed.
constexpr auto kMoment = 200ms;

/// Waits until it is dismissed, or the parent has died, or the time is over: false. `parent` is its
/// pidfd, or -1.
bool is_dismissed(int parent, int limit_ms) {
  pollfd watched[2] = {{.fd = kSignFd, .events = POLLIN, .revents = 0},
                       {.fd = parent, .events = POLLIN, .revents = 0}};
  for (;;) {
    if (::poll(watched, 2, limit_ms) == 0) return false;
    if (watched[0].revents != 0) {
      char byte = 0;
      const ssize_t size = ::recv(kSignFd, &byte, 1, MSG_DONTWAIT);
      if (size > 0) return true;
      // The end of file: the parent is dying, and perhaps not dead yet.
      if (size == 0 && parent < 0) return false;
      if (size == 0) watched[0].fd = -1;
    }
    if (watched[1].revents != 0) return false;
    watched[0].revents = watched[1].revents = 0;
  }
}

}  // namespace

std::unique_ptr<Janitor> Janitor::start(int program) {
  const std::string directory = os::Cgroup::parent_directory();
  if (directory.empty() || program < 0) return nullptr;
  int sign[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sign) != 0) return nullptr;
  const os::UniqueFd theirs(sign[0]);
  os::UniqueFd ours(sign[1]);
  const os::UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!nothing) return nullptr;
  os::SpawnOptions spawn;
  spawn.program_fd = program;
  spawn.path = "strata-worker";
  spawn.argv = {"strata-worker", kOption, directory, os::Cgroup::name_prefix(kGroupPrefix),
                std::to_string(::getpid())};
  spawn.descriptors = {{nothing.get(), STDIN_FILENO},
                       {nothing.get(), STDOUT_FILENO},
                       {nothing.get(), STDERR_FILENO},
                       {theirs.get(), kSignFd}};
  spawn.own_process_group = true;
  spawn.die_with_parent = false;
  try {
    return std::unique_ptr<Janitor>(new Janitor(std::move(ours), os::spawn(spawn)));
  } catch (const std::exception&) {
    return nullptr;
  }
}

void Janitor::dismiss() noexcept {
  if (!lifeline_) return;
  const char byte = 0;
  (void)::send(lifeline_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  lifeline_.reset();
}

Janitor::~Janitor() {
  dismiss();
  try {
    if (process_.wait(os::Deadline::after(kMoment))) return;
    ChildResources left;
    left.process = std::move(process_);
    hand_to_reaper(std::move(left));
  } catch (const std::exception&) {
    // It ends by itself.
  }
}

bool is_janitor(int argc, char** argv) noexcept {
  return argc == 5 && std::strcmp(argv[1], kOption) == 0;
}

int janitor_main(char** argv) {
  const std::string directory = argv[2];
  const std::string prefix = argv[3];
  const std::string_view parent_text = argv[4];
  pid_t parent = 0;
  std::from_chars(parent_text.data(), parent_text.data() + parent_text.size(), parent);
  const os::UniqueFd parent_end(static_cast<int>(::syscall(SYS_pidfd_open, parent, 0)));
  const bool alive = ::getppid() == parent;  // Then the descriptor is the parent's.
  if (is_dismissed(alive ? parent_end.get() : -1, alive ? -1 : 0)) return 0;
  const os::Deadline end = os::Deadline::after(kPatience);
  while (os::Cgroup::end_groups(directory, prefix) != 0 && !end.passed())
    std::this_thread::sleep_for(2ms);
  return 0;
}

}  // namespace strata::node
