#include "node/janitor.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

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

}  // namespace

std::unique_ptr<Janitor> Janitor::start(int program) {
  const std::string directory = os::Cgroup::parent_directory();
  if (directory.empty() || program < 0) return nullptr;
  int sign[2];
  if (::pipe2(sign, O_CLOEXEC) != 0) return nullptr;
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

Janitor::~Janitor() {
  dismiss();
  try {
    if (process_.wait(os::Deadline::after(kPatience))) return;
    (void)process_.send(SIGKILL);
    (void)process_.wait(os::Deadline::after(kPatience));
  } catch (const std::exception&) {
    // It is on its own then, and ends by itself.
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
  char none = 0;
  while (::read(kSignFd, &none, 1) < 0 && errno == EINTR) {
  }
  // A parent that lives has seen to its groups itself.
  if (::getppid() == parent) return 0;
  const os::Deadline end = os::Deadline::after(kPatience);
  while (os::Cgroup::end_groups(directory, prefix) != 0 && !end.passed())
    std::this_thread::sleep_for(2ms);
  return 0;
}

}  // namespace strata::node
