#include "cli/log_pump.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <optional>
#include <utility>

#include "node/log_collector.hpp"
#include "node/protocol.hpp"
#include "os/system_error.hpp"

namespace strata::cli {
namespace {

/// Local time of day, "14:03:59.123".
std::string time_of_day() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::tm parts{};
  ::localtime_r(&now.tv_sec, &parts);
  return fmt::format("{:02}:{:02}:{:02}.{:03}", parts.tm_hour, parts.tm_min, parts.tm_sec,
                     now.tv_nsec / 1'000'000);
}

/// Length of the "[node/chip[1]] " that a line begins with; 0 if it begins with none. Paths have
/// brackets of their own, in pairs.
std::size_t prefix_length(std::string_view line) {
  if (!line.starts_with('[')) return 0;
  int depth = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '[') ++depth;
    if (line[i] == ']' && --depth == 0) {
      return i + 1 < line.size() && line[i + 1] == ' ' ? i + 2 : i + 1;
    }
  }
  return 0;
}

}  // namespace

struct LogPump::State {
  explicit State(LogPumpOptions given) : options(std::move(given)) {}

  const LogPumpOptions options;
  os::UniqueFd read_end;
  os::UniqueFd file;
  os::EventFd stop = os::EventFd::make();  ///< Signalled once, and never drained.
  os::EventFd finished = os::EventFd::make();
  node::LogSink stderr_sink;
  std::optional<node::LogSink> file_sink;

  void read_all();
  void pass_on(std::string_view line);
  void wait_until_taken();
};

/// In the form that was asked for, to wherever it goes.
void LogPump::State::pass_on(std::string_view line) {
  const bool marked = line.starts_with(node::kPrefixed);
  if (marked) line.remove_prefix(1);
  std::string text(1, node::kPrefixed);  // For the sinks: there is nothing to put in front.
  if (options.timestamps) text += time_of_day() + " ";
  if (options.prefix && !marked) text += "[" + options.program + "] ";
  if (!options.prefix && marked) line.remove_prefix(prefix_length(line));
  text += line;
  stderr_sink.worker_line("", text);
  if (file_sink) file_sink->worker_line("", text);
}

/// What the sinks have is at most what was read at once, so they never drop a line.
void LogPump::State::wait_until_taken() {
  (void)stderr_sink.flush(os::Deadline::never());
  if (file_sink) (void)file_sink->flush(os::Deadline::never());
}

void LogPump::State::read_all() {
  node::LineAssembler lines([this](std::string_view line) { pass_on(line); });
  std::array<char, 64 << 10> bytes;
  std::array<pollfd, 2> waits = {{{.fd = stop.fd(), .events = POLLIN, .revents = 0},
                                  {.fd = read_end.get(), .events = POLLIN, .revents = 0}}};
  for (;;) {
    if (::poll(waits.data(), waits.size(), -1) < 0) continue;  // A signal that is none of ours.
    const bool stopping = waits[0].revents != 0;  // Looked at first: then what is read now is all.
    const ssize_t got = ::read(read_end.get(), bytes.data(), bytes.size());
    if (got > 0) {
      lines.feed({bytes.data(), static_cast<std::size_t>(got)});
      wait_until_taken();
    } else if (stopping) {
      break;
    } else if (got == 0) {
      waits[1].fd = -1;  // Nobody can write any more; there may be messages of our own.
    }
  }
  lines.end();
  wait_until_taken();
  finished.signal();
}

LogPump::LogPump(LogPumpOptions options) : state_(std::make_shared<State>(std::move(options))) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) os::throw_errno("make a pipe for the program's stderr");
  state_->read_end.reset(ends[0]);
  write_end_.reset(ends[1]);
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) os::throw_errno("make a pipe non-blocking");
  const std::string& path = state_->options.log_file;
  if (path.empty()) return;
  state_->file.reset(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  if (!state_->file) os::throw_errno("open the log file '" + path + "'");
  state_->file_sink.emplace(node::LogSinkOptions{.fd = state_->file.get()});
}

LogPump::~LogPump() {
  if (!thread_.joinable()) return;
  pollfd finished{.fd = finished_fd(), .events = POLLIN, .revents = 0};
  if (::poll(&finished, 1, 0) == 1) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

int LogPump::write_end() const noexcept { return write_end_.get(); }
void LogPump::close_write_end() { write_end_.reset(); }
void LogPump::stop_when_empty() { state_->stop.signal(); }
int LogPump::finished_fd() const noexcept { return state_->finished.fd(); }

std::string LogPump::stream_name() const {
  struct stat status {};
  if (::fstat(write_end_.get(), &status) != 0) os::throw_errno("look at the program's stderr");
  return fmt::format("{}:{}", status.st_dev, status.st_ino);
}

void LogPump::start() {
  thread_ = std::thread([state = state_] { state->read_all(); });
}

void LogPump::message(LogLevel level, std::string_view text) {
  state_->stderr_sink.message(level, "strata run", text);
  if (state_->file_sink) state_->file_sink->message(level, "strata run", text);
}

}  // namespace strata::cli
