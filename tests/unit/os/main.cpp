// Main of unit_os: runs the tests, or, where they started it as a child, what they asked for.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "child.hpp"
#include "os/procfs.hpp"

namespace strata::os::test {
namespace {

/// Lines of /proc/self/status that begin with "Sig", and those only.
std::string signal_lines() {
  std::string result;
  const std::string text = read_small_file("/proc/self/status").value_or("");
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    if (line.starts_with("SigBlk") || line.starts_with("SigIgn")) result += line + "\n";
    begin = end + 1;
  }
  return result;
}

void say(const std::string& text) {
  if (::write(1, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::_Exit(99);
}

[[noreturn]] void sleep_for_ever() {
  for (;;)
    ::pause();
}

}  // namespace

int child_main(const std::vector<std::string>& arguments) {
  const std::string& action = arguments.at(0);
  const auto argument = [&](std::size_t n) { return std::stoi(arguments.at(n)); };
  if (action == "exit") std::_Exit(argument(1));
  if (action == "signal") {
    ::signal(argument(1), SIG_DFL);  // Sanitizers handle some.
    ::raise(argument(1));
  }
  if (action == "sleep") sleep_for_ever();
  if (action == "ready-and-sleep") {
    say("ready\n");
    sleep_for_ever();
  }
  if (action == "descriptors") {
    std::string text;
    // Those of the listing itself are gone by the time of the second look.
    for (const auto& [fd, target] : open_descriptors(::getpid())) {
      if (::fcntl(fd, F_GETFD) >= 0) text += std::to_string(fd) + " " + target + "\n";
    }
    say(text);
    return 0;
  }
  if (action == "signals") {
    say(signal_lines());
    return 0;
  }
  if (action == "group") {
    say(::getpgid(0) == ::getpid() ? "leader" : "member");
    return 0;
  }
  if (action == "parent-death-signal") {
    int signal = 0;
    ::prctl(PR_GET_PDEATHSIG, &signal);
    say(std::to_string(signal));
    return 0;
  }
  if (action == "environment") {
    for (const std::string& variable : current_environment())
      say(variable + "\n");
    return 0;
  }
  if (action == "cgroup") {
    say(read_small_file("/proc/self/cgroup").value_or(""));
    return 0;
  }
  if (action == "parent") {
    // Starts a child that inherits its output, and sleeps. With "orphan" that child may live on.
    SpawnOptions options = child_options({"sleep"});
    options.descriptors = {{0, 0}, {1, 1}, {2, 2}};
    options.die_with_parent = arguments.at(1) != "orphan";
    const ChildProcess child = spawn(options);
    say(std::to_string(child.pid()) + "\n");
    sleep_for_ever();
  }
  std::fprintf(stderr, "no such action: %s\n", action.c_str());
  return 98;
}

SpawnOptions child_options(const std::vector<std::string>& arguments) {
  SpawnOptions options;
  options.path = "/proc/self/exe";
  options.argv = {"unit_os", kChildMark};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.envp = current_environment();
  options.descriptors = {{0, 0}, {1, 1}, {2, 2}};
  return options;
}

Pipe make_pipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> part{};
  for (;;) {
    const auto size = ::read(fd, part.data(), part.size());
    if (size > 0) text.append(part.data(), static_cast<std::size_t>(size));
    if (size == 0 || (size < 0 && errno != EINTR)) return text;
  }
}

std::string read_line(int fd) {
  std::string text;
  for (char c = 0; ::read(fd, &c, 1) == 1 && c != '\n';)
    text += c;
  return text;
}

Outcome run(SpawnOptions options) {
  Pipe pipe = make_pipe();
  std::erase_if(options.descriptors, [](const auto& d) { return d.to == 1; });
  options.descriptors.push_back({pipe.write.get(), 1});
  ChildProcess child = spawn(options);
  pipe.write.reset();
  std::string output = read_all(pipe.read.get());
  return {child.wait(Deadline::never()).value_or(ExitStatus{}), std::move(output)};
}

}  // namespace strata::os::test

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == strata::os::test::kChildMark) {
    return strata::os::test::child_main(std::vector<std::string>(argv + 2, argv + argc));
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
