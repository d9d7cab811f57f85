#include "child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <system_error>

extern char** environ;

namespace strata::bench {
namespace {

/// A file without a name that a child can write to at any length: no pipe has to be drained.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("strata-bench", MFD_CLOEXEC)) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] std::string content() const {
    std::string text(static_cast<std::size_t>(lseek(fd_, 0, SEEK_END)), '\0');
    const ssize_t got = pread(fd_, text.data(), text.size(), 0);
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
  }

 private:
  int fd_;
};

pid_t spawn(const std::vector<std::string>& command, int out, int error) {
  std::vector<char*> argv;
  for (const std::string& word : command)
    argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, 1);
  posix_spawn_file_actions_adddup2(&actions, error, 2);
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw std::system_error(failed, std::generic_category(), command[0]);
  return pid;
}

/// Waits for the end and says how it was if it was not good.
std::string wait_for(pid_t pid, std::chrono::seconds limit) {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  bool late = false;
  if (pidfd >= 0) {
    pollfd waited{.fd = pidfd, .events = POLLIN, .revents = 0};
    late = poll(&waited, 1, static_cast<int>(limit.count() * 1000)) == 0;
    close(pidfd);
  }
  if (late) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (late) return fmt::format("did not end within {} s", limit.count());
  if (WIFSIGNALED(status)) return fmt::format("ended by {}", strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0) return fmt::format("exit code {}", WEXITSTATUS(status));
  return {};
}

std::string last_line(std::string_view text) {
  while (!text.empty() && text.back() == '\n')
    text.remove_suffix(1);
  const std::size_t at = text.rfind('\n');
  return std::string(at == std::string_view::npos ? text : text.substr(at + 1));
}

Outcome parse(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line);
  Outcome outcome;
  if (json.value("unsupported", false)) {
    outcome.missing = "can't do this";
    return outcome;
  }
  outcome.infers = json.at("infers").get<bool>();
  outcome.note = json.at("note").get<std::string>();
  for (const auto& [suffix, value] : json.at("values").items()) {
    outcome.readings[suffix] = {.value = value.at("median").get<double>(),
                                .min = value.at("min").get<double>(),
                                .unit = value.at("unit").get<std::string>()};
  }
  return outcome;
}

/// What the peer printed; if there is nothing, `outcome` says why.
std::optional<std::string> run_peer(std::string_view peer, std::string_view package,
                                    std::vector<std::string> command, Outcome& outcome) {
  constexpr std::chrono::seconds kLimit{60};
  const std::string path = peer_path(peer);
  if (access(path.c_str(), X_OK) != 0) {
    outcome.missing = fmt::format("not built; needs {}", package);
    return std::nullopt;
  }
  command.insert(command.begin(), path);
  const ChildOutput output = run_child(command, kLimit);
  if (output.failure.empty()) return output.out;
  outcome.missing = fmt::format("failed, {}: {}", output.failure, last_line(output.error));
  return std::nullopt;
}

}  // namespace

ChildOutput run_child(const std::vector<std::string>& command, std::chrono::seconds limit) {
  const MemoryFile out, error;
  const pid_t pid = spawn(command, out.fd(), error.fd());
  ChildOutput result;
  result.failure = wait_for(pid, limit);
  result.out = out.content();
  result.error = error.content();
  return result;
}

std::string peer_path(std::string_view peer) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  return (self.parent_path() / "bench-peers" / peer).string();
}

Outcome measure_peer(std::string_view peer, std::string_view package, const std::string& measure,
                     unsigned threads, double budget_ms) {
  Outcome outcome;
  const std::optional<std::string> out = run_peer(
      peer, package, {measure, std::to_string(threads), fmt::format("{}", budget_ms)}, outcome);
  if (!out) return outcome;
  try {
    return parse(last_line(*out));
  } catch (const nlohmann::json::exception& e) {
    outcome.missing = fmt::format("printed what is no JSON: {}", last_line(*out));
    return outcome;
  }
}

Outcome measure_lines(std::string_view program, const std::vector<std::string>& arguments,
                      const std::string& unit) {
  Outcome outcome;
  const std::optional<std::string> out =
      run_peer(program, "the strata library", arguments, outcome);
  if (!out) return outcome;
  std::istringstream lines(*out);
  std::string name;
  double value = 0;
  while (lines >> name >> value) {
    const std::size_t slash = name.find('/');
    const std::string owner = name.substr(0, slash);
    std::string figure = slash == std::string::npos ? std::string() : name.substr(slash + 1);
    if (owner != program) figure += "@" + owner;
    outcome.readings[figure] = {.value = value, .min = value, .unit = unit};
  }
  if (outcome.readings.empty()) outcome.missing = "printed no figure";
  return outcome;
}

}  // namespace strata::bench
