#include "node/log_sink.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "node/protocol.hpp"

namespace strata::node {
namespace {

using namespace std::chrono_literals;

/// Whether `fd` is the pipe that the environment says is read by `strata run`.
bool is_marked_stream(int fd) {
  const char* const stream = std::getenv(kLogStreamVariable);
  struct stat status {};
  return stream != nullptr && ::fstat(fd, &status) == 0 &&
         fmt::format("{}:{}", status.st_dev, status.st_ino) == stream;
}

/// Writes all of it, however long that takes. False if nobody reads what is written there.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      // Someone made stderr non-blocking, as is his right.
      pollfd wait{.fd = fd, .events = POLLOUT, .revents = 0};
      (void)::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<LogLevel> log_level_from(std::string_view name) noexcept {
  for (const LogLevel level :
       {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error, LogLevel::off}) {
    if (name_of(level) == name) return level;
  }
  return std::nullopt;
}

struct LogSink::State : std::enable_shared_from_this<LogSink::State> {
  explicit State(const LogSinkOptions& given)
      : options(given), level(given.level), marked(given.marked || is_marked_stream(given.fd)) {}

  const LogSinkOptions options;
  /// Written by set_level(), read by all. Relaxed: nothing else depends on it.
  std::atomic<LogLevel> level;
  const bool marked;

  std::mutex mutex;  ///< For all below. Never held while writing to stderr.
  std::condition_variable wake_writer;
  std::condition_variable progress;  ///< Something was written, or the writer has ended.
  std::deque<std::string> queue;     ///< Whole lines, with prefix and line break.
  std::size_t queued_bytes = 0;
  std::uint64_t handed_over = 0;  ///< Lines put into the queue ever.
  std::uint64_t settled = 0;      ///< Of those, how many are written or dropped.
  std::uint64_t dropped = 0;
  std::uint64_t dropped_told = 0;  ///< Of those, how many the log tells of.
  bool stopping = false;
  bool writer_ended = false;
  std::thread writer;  ///< Started with the first line.

  void push(std::string_view path, std::string_view label, std::string_view text);
  void start_writer();
  void write_lines();
  [[nodiscard]] std::string next_batch(std::uint64_t& lines);
};

void LogSink::State::push(std::string_view path, std::string_view label, std::string_view text) {
  std::string line;
  line.reserve(path.size() + label.size() + text.size() + 5);
  if (marked) line += kPrefixed;
  if (!path.empty()) line.append("[").append(path).append("] ");
  line.append(label).append(text).append("\n");

  const std::scoped_lock lock(mutex);
  while (!queue.empty() && queued_bytes + line.size() > options.queue_bytes) {
    queued_bytes -= queue.front().size();
    queue.pop_front();
    ++dropped;
    ++settled;
  }
  queued_bytes += line.size();
  queue.push_back(std::move(line));
  ++handed_over;
  if (!writer.joinable()) start_writer();
  wake_writer.notify_one();
}

/// With every signal blocked from its first instruction on.
void LogSink::State::start_writer() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    writer = std::thread([self = shared_from_this()] { self->write_lines(); });
  } catch (...) {
    // No thread now: the line stays queued, and the next one tries again.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// Takes the next line out of the queue, and those behind it that fit into one atomic write.
std::string LogSink::State::next_batch(std::uint64_t& lines) {
  std::string batch;
  lines = 0;
  if (dropped > dropped_told) {
    if (marked) batch += kPrefixed;
    batch +=
        fmt::format("strata: warning: {} lines dropped here, since stderr took them too slowly\n",
                    dropped - dropped_told);
    dropped_told = dropped;
    return batch;
  }
  while (!queue.empty() && (batch.empty() || batch.size() + queue.front().size() <= PIPE_BUF)) {
    queued_bytes -= queue.front().size();
    if (batch.empty()) {
      batch = std::move(queue.front());
    } else {
      batch += queue.front();
    }
    queue.pop_front();
    ++lines;
  }
  return batch;
}

void LogSink::State::write_lines() {
  (void)pthread_setname_np(pthread_self(), "strata-log");
  std::unique_lock lock(mutex);
  for (;;) {
    wake_writer.wait(lock, [&] { return stopping || !queue.empty(); });
    if (queue.empty()) break;
    std::uint64_t lines = 0;
    const std::string batch = next_batch(lines);
    lock.unlock();
    const bool taken = write_all(options.fd, batch);
    lock.lock();
    settled += lines;
    if (!taken) dropped += lines;
    progress.notify_all();
  }
  writer_ended = true;
  progress.notify_all();
}

LogSink::LogSink(LogSinkOptions options) : state_(std::make_shared<State>(options)) {
  const char* const wanted = std::getenv(kLogLevelVariable);
  if (wanted == nullptr || *wanted == '\0') return;
  if (const std::optional<LogLevel> level = log_level_from(wanted)) {
    set_level(*level);
  } else {
    message(LogLevel::warning, "",
            fmt::format("the variable {} is '{}', which is none of debug, info, warning, error and "
                        "off: the level stays {}",
                        kLogLevelVariable, wanted, name_of(options.level)));
  }
}

LogSink::~LogSink() {
  const auto deadline = os::Deadline::after(500ms).time_point();
  std::unique_lock lock(state_->mutex);
  if (!state_->writer.joinable()) return;
  state_->stopping = true;
  state_->wake_writer.notify_one();
  const bool ended =
      state_->progress.wait_until(lock, deadline, [&] { return state_->writer_ended; });
  if (!ended) {
    // Stuck in a write(): it shares the state, and ends once stderr takes that line.
    state_->queue.clear();
    state_->writer.detach();
    return;
  }
  lock.unlock();
  state_->writer.join();
}

void LogSink::message(LogLevel level, std::string_view path, std::string_view text) {
  if (!enabled(level)) return;
  const std::string label = fmt::format("strata: {}: ", name_of(level));
  while (text.ends_with('\n'))
    text.remove_suffix(1);
  for (;;) {
    const std::size_t end = text.find('\n');
    state_->push(path, label, text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

void LogSink::worker_line(std::string_view path, std::string_view line) {
  if (line.starts_with(kPrefixed)) {
    state_->push("", "", line.substr(1));
  } else {
    state_->push(path, "", line);
  }
}

bool LogSink::flush(os::Deadline deadline) {
  std::unique_lock lock(state_->mutex);
  const std::uint64_t wanted = state_->handed_over;
  if (!state_->queue.empty() && !state_->writer.joinable()) {
    state_->start_writer();
    if (!state_->writer.joinable()) return false;
  }
  if (deadline.is_never()) {
    state_->progress.wait(lock, [&] { return state_->settled >= wanted; });
    return true;
  }
  return state_->progress.wait_until(lock, deadline.time_point(),
                                     [&] { return state_->settled >= wanted; });
}

LogLevel LogSink::level() const noexcept { return state_->level.load(std::memory_order_relaxed); }

void LogSink::set_level(LogLevel level) noexcept {
  state_->level.store(level, std::memory_order_relaxed);
}

bool LogSink::enabled(LogLevel level) const noexcept {
  return level != LogLevel::off && level >= this->level();
}

std::uint64_t LogSink::dropped() const noexcept {
  const std::scoped_lock lock(state_->mutex);
  return state_->dropped;
}

}  // namespace strata::node
