#include "support/program.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <ostream>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "support/time_bounds.hpp"

extern char** environ;

namespace strata::test {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
};
Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe2");
  }
  return {ends[0], ends[1]};
}

/// This process's environment with some variables set anew.
std::vector<std::string> environment_with(const Program::Environment& added) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const auto& [key, value] : added)
      replaced = replaced || key == name;
    if (!replaced) all.push_back(text);
  }
  for (const auto& [key, value] : added)
    all.push_back(key + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts)
    pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

/// Reads one pipe in a thread of its own, so that the program never waits for the test.
class Program::Reader {
 public:
  explicit Reader(int fd) : fd_(fd), stop_(make_pipe()), thread_([this] { read(); }) {}
  ~Reader() {
    // Not by its end of file: what the program left behind may hold it open.
    (void)!::write(stop_.write, "x", 1);
    thread_.join();
    for (const int fd : {fd_, stop_.read, stop_.write})
      ::close(fd);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  [[nodiscard]] std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

  /// Waits until all that is in the pipe has been read.
  void catch_up() const {
    (void)within(std::chrono::seconds(10), [this] {
      const std::lock_guard lock(mutex_);
      int waiting = 0;
      return ::ioctl(fd_, FIONREAD, &waiting) != 0 || waiting == 0;
    });
  }

 private:
  void read() {
    std::array<char, 65'536> block{};
    while (true) {
      std::array<pollfd, 2> fds{{{.fd = fd_, .events = POLLIN, .revents = 0},
                                 {.fd = stop_.read, .events = POLLIN, .revents = 0}}};
      if (::poll(fds.data(), fds.size(), -1) < 0) continue;
      if (fds[0].revents != 0) {
        // Does not block: nobody else reads.
        const std::lock_guard lock(mutex_);
        const ssize_t got = ::read(fd_, block.data(), block.size());
        if (got <= 0) return;
        text_.append(block.data(), static_cast<std::size_t>(got));
        continue;
      }
      if (fds[1].revents != 0) return;
    }
  }
  const int fd_;
  const Pipe stop_;
  mutable std::mutex mutex_;
  std::string text_;  // Guarded by mutex_.
  std::thread thread_;
};

std::string to_string(const ProgramEnd& end) {
  return end.signal != 0 ? std::string("killed by signal ") + std::to_string(end.signal)
                         : "exited with status " + std::to_string(end.exit_code);
}
void PrintTo(const ProgramEnd& end, std::ostream* stream) { *stream << to_string(end); }

std::string test_library(const std::string& name) {
  return std::string(STRATA_TEST_LIBRARIES) + "/lib" + name + ".so";
}
std::string test_program(const std::string& name) {
  return std::string(STRATA_TEST_PROGRAMS) + "/" + name;
}

Program::Program(const std::string& path, const std::vector<std::string>& arguments,
                 const Environment& environment)
    : mark_(new_mark()) {
  const std::string file = path.find('/') == std::string::npos ? test_program(path) : path;
  Environment added = environment;
  added.emplace_back(kMarkVariable, mark_);
  std::vector<std::string> env = environment_with(added);
  std::vector<std::string> args = arguments;
  args.insert(args.begin(), file);

  const Pipe in = make_pipe();
  const Pipe out = make_pipe();
  const Pipe err = make_pipe();
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in.read, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.write, 1);
  ::posix_spawn_file_actions_adddup2(&actions, err.write, 2);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  sigset_t all;
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error = ::posix_spawn(&pid_, file.c_str(), &actions, &attributes,
                                  pointers_to(args).data(), pointers_to(env).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  for (const int fd : {in.read, out.write, err.write})
    ::close(fd);
  if (error != 0) {
    for (const int fd : {in.write, out.read, err.read})
      ::close(fd);
    throw std::system_error(error, std::generic_category(), "can't start " + file);
  }
  stdin_ = in.write;
  output_ = std::make_unique<Reader>(out.read);
  errors_ = std::make_unique<Reader>(err.read);
}

Program::~Program() {
  if (!ended()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  kill_marked(mark_);
  if (testing::Test::HasFailure()) {
    std::fprintf(stderr, "---- output of %d ----\n%s---- its errors ----\n%s----\n", pid_,
                 output().c_str(), errors().c_str());
  }
  ::close(stdin_);
}

std::optional<std::string> Program::line(const std::string& beginning,
                                         std::chrono::milliseconds promised) {
  std::optional<std::string> found;
  const auto look = [&] {
    const std::string text = output();
    for (std::size_t end; (end = text.find('\n', taken_)) != std::string::npos;) {
      const std::string line = text.substr(taken_, end - taken_);
      taken_ = end + 1;
      if (line.compare(0, beginning.size(), beginning) == 0) {
        found = line;
        return true;
      }
    }
    return false;
  };
  (void)within(promised, [&] { return look() || (ended() && (look(), true)); });
  if (!found) {
    ADD_FAILURE() << "no line '" << beginning << "' from the program ("
                  << (ended() ? to_string(*end_) : "it runs") << "); its output:\n"
                  << output() << "its errors:\n"
                  << errors();
  }
  return found;
}

void Program::send(const std::string& line) {
  const std::string text = line + "\n";
  (void)!::write(stdin_, text.data(), text.size());
}

void Program::signal(int number) const { ::kill(pid_, number); }

bool Program::ended() {
  if (end_) return true;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return false;
  end_ = WIFEXITED(status) ? ProgramEnd{.exit_code = WEXITSTATUS(status), .signal = 0}
                           : ProgramEnd{.exit_code = -1, .signal = WTERMSIG(status)};
  output_->catch_up();
  errors_->catch_up();
  return true;
}

std::optional<ProgramEnd> Program::end(std::chrono::milliseconds promised) {
  (void)within(promised, [&] { return ended(); });
  return end_;
}

std::string Program::output() const { return output_->text(); }
std::string Program::errors() const { return errors_->text(); }

std::vector<MarkedProcess> Program::descendants() const {
  std::vector<MarkedProcess> others = marked_processes(mark_);
  std::erase_if(others, [&](const MarkedProcess& process) { return process.pid == pid_; });
  return others;
}

}  // namespace strata::test
